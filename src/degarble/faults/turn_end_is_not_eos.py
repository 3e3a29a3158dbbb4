"""Plants TPL506."""

from __future__ import annotations

from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.template_edit import rendered_of
from degarble.finding import Location
from degarble.templates.markers import MarkerTable
from degarble.templates.stop_tokens import StopIds, read_stop_ids
from degarble.templates.turns import closings
from degarble.tokenizer.families import Family
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim


def _healthy(patient: Patient) -> tuple[KnownTokens, StopIds, list[str]]:
    """Tokens, stop ids, and what the template writes after answers. Raises NotApplicable."""
    tried = rendered_of(patient)
    known: KnownTokens | None = patient.evidence.find("known_tokens")
    markers: MarkerTable | None = patient.evidence.find("markers")
    if known is None or markers is None:
        raise NotApplicable("no tokenizer")
    ends = closings(tried, markers.tokens)
    if not ends:
        raise NotApplicable("the template writes no token after an answer")
    return known, read_stop_ids(patient.evidence.get("token_claims"), known.id_of), ends


def _other(patient: Patient, known: KnownTokens, ends: list[str]) -> str:
    """Another special token without a role, preferably one that the family stops at elsewhere."""
    claims: tuple[TokenClaim, ...] = patient.evidence.get("token_claims")
    home: tuple[Family, ...] = patient.evidence.find("token_families") or ()
    stops = {text for family in home for text in family.roles["eos"]}
    taken = {
        claim.text or known.text_of(claim.token_id or 0) for claim in claims if claim.role in ("bos_token", "pad_token")
    }
    free = [
        token.content
        for token in known.tokenizer.added_tokens.values()
        if token.special and token.content not in ends and not token.content.startswith(("<unk", "<pad"))
    ]
    preferred = [text for text in free if text in stops] or [text for text in free if text not in taken]
    return patient.pick(sorted(preferred))


def _replace_everywhere(patient: Patient, stops: StopIds, known: KnownTokens, text: str) -> None:
    at = known.id_of(text)
    for file, key in stops.keys.items():
        if file.endswith(".gguf"):
            shard: Any = patient.workspace.shard(file)
            shard.set_metadata(key, at)
        elif file in ("config.json", "generation_config.json"):
            patient.workspace.json(file)["eos_token_id"] = at
        else:
            config = patient.workspace.json(file)
            old = config["eos_token"]
            config["eos_token"] = {**old, "content": text} if isinstance(old, dict) else text


@fault("TPL506")
def turn_end_is_not_eos(patient: Patient) -> Location:
    """Name another special token as the stop token, in every file."""
    known, stops, ends = _healthy(patient)
    if any("." in key and not key.startswith("tokenizer.ggml") for key in stops.keys.values()):
        raise NotApplicable("a nested config")
    _replace_everywhere(patient, stops, known, _other(patient, known, ends))
    file = stops.obeyed_file or "tokenizer_config.json"
    return Location(file=file, key=stops.keys.get(file, "eos_token"))


@fault("TPL506")
def turn_end_lost_from_generation_config(patient: Patient) -> Location:
    """Name another special token in generation_config.json alone."""
    known, stops, ends = _healthy(patient)
    others = frozenset().union(*(ids for file, ids in stops.by_file.items() if file != "generation_config.json"))
    if "generation_config.json" not in stops.by_file or others.isdisjoint(map(known.id_of, ends)):
        raise NotApplicable("no generation_config.json, or nothing else names the turn's end")
    patient.workspace.json("generation_config.json")["eos_token_id"] = known.id_of(_other(patient, known, ends))
    return Location(file="generation_config.json", key="eos_token_id")
