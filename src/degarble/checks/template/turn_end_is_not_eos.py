"""TPL506: the token that ends an answer in the chat template is not a stop token."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.template.template_place import place_of, title_of
from degarble.finding import Confidence, Finding, Fix, Location, Scalar, Severity
from degarble.registry import check
from degarble.templates.markers import MarkerTable
from degarble.templates.renderings import TemplateRenderings
from degarble.templates.stop_tokens import LLAMA_CPP_NAMES, StopIds, read_stop_ids
from degarble.templates.turns import closings, openings
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

READERS = {
    "generation_config.json": "transformers, vLLM, SGLang and TGI",
    "config.json": "transformers where there is no generation_config.json, SGLang, MLX",
    "tokenizer_config.json": "vLLM, SGLang and TGI",
    "special_tokens_map.json": "vLLM, SGLang and TGI",
}
SYMPTOM_OF = ("CFG101", "CKP105", "TOK401", "TOK404", "TOK406", "TOK413", "TPL502", "TPL503", "TPL507")


@check("TPL506", symptom_of=SYMPTOM_OF)
def turn_end_is_not_eos(
    renderings: tuple[TemplateRenderings, ...],
    markers: MarkerTable,
    known_tokens: KnownTokens,
    token_claims: tuple[TokenClaim, ...],
) -> Iterator[Finding]:
    """What the chat template writes after an answer is in no stop set.

    ## What it looks for
    The first token of the tokenizer that the template writes after an answer, at the end of a conversation and before
    the next question; one of the two is enough. It has to be a stop id: in generation_config.json, in config.json where
    that one names none, or by the tokenizer's `eos_token` where there is neither; in GGUF as eos, eot or eom id. In no
    file: an error. In some files, but not in the one that transformers obeys: a warning that names who reads which.

    ## Why output turns to garbage
    The model writes the token at the end of its answer, as trained, and the engine goes on. Next comes what comes next
    in training: a question of the user, an answer to it, and so on up to the token limit.

    ## What you will see
    A right answer, then `user` and a made-up question; every answer as long as `max_tokens` allows; `finish_reason` is
    `length`. Markers such as `<|im_end|>` in the text where special tokens are shown.

    ## How to tell it from its look-alikes
    Files may name different stop ids and all be right: Gemma 3's tokenizer names `<eos>`, and its generation_config.json
    adds `<end_of_turn>`. gpt-oss closes its last message with `<|return|>`, earlier ones with `<|end|>`. GLM writes
    nothing after an answer but the next user's marker, and stops at that. Where the template writes plain text after an
    answer, nothing is judged. llama.cpp also stops at some tokens by name, so a GGUF file without the id is a warning
    there: other readers of GGUF do not.

    ## How to confirm
    Render a conversation that ends with an answer, encode it, and look for the id of the last token in
    `generation_config.eos_token_id`.

    ## How to repair it
    Add the id to the list in generation_config.json (GGUF: `tokenizer.ggml.eot_token_id`). Safe unattended where the
    template writes one token after answers and it is flagged special: a further stop id takes nothing away.

    ## References
    vllm-project/vllm#4180, QwenLM/Qwen3#927, Blaizzy/mlx-vlm#2112, ml-explore/mlx-lm#1414, raullenchai/Rapid-MLX#546
    """
    for tried in renderings[:1]:
        ends = {text: at for text in closings(tried, markers.tokens) if (at := markers.id_of(text)) is not None}
        stops = read_stop_ids(token_claims, markers.id_of)
        obeyed = stops.all if known_tokens.is_gguf else stops.by_file.get(stops.obeyed_file or "", frozenset())
        if not ends or not obeyed.isdisjoint(ends.values()):
            continue
        yield _finding(tried, ends, stops, known_tokens)


def _finding(tried: TemplateRenderings, ends: dict[str, int], stops: StopIds, known: KnownTokens) -> Finding:
    text, token_id = next(iter(ends.items()))
    naming = [file for file, ids in stops.by_file.items() if not ids.isdisjoint(ends.values())]
    place = _place(stops, known)
    written = f"{title_of(tried.template)} writes {text!r} ({token_id}) after an answer"
    if naming:
        lacking = f"{place.file}, read by {READERS.get(place.file or '', 'others')}, stops at {_ids(stops, place.file)}"
        rest = f"only {_readers(naming)} name it; {lacking}"
    elif stops.all:
        rest = f"nothing stops there: {'; '.join(f'{file} has {_ids(stops, file)}' for file in stops.by_file)}"
    else:
        rest = "no file names a stop token"
    is_opener = text in openings(tried)
    by_name = known.is_gguf and text in LLAMA_CPP_NAMES
    if by_name:
        rest += "; llama.cpp stops at it by its name, other readers of the file do not"
    others = (Location(file=file, key=stops.keys[file]) for file in stops.by_file if file != place.file)
    return Finding(
        location=place,
        places=(place, *others, place_of(tried.template, token=text)),
        message=f"{written}, and {rest}",
        severity=Severity.WARNING if naming or by_name or is_opener else None,
        confidence=Confidence.LIKELY if is_opener else None,
        measured={"stop_ids": list[Scalar](sorted(stops.all)[:20])},
        bound={"turn_end": token_id},
        fix=Fix(id="add-stop-id", safe=len(ends) == 1 and known.is_special(token_id) and not is_opener),
    )


def _place(stops: StopIds, known: KnownTokens) -> Location:
    """Where the id is to be added."""
    if known.is_gguf:
        return Location(
            file=known.tokenizer.file, key=stops.keys.get(known.tokenizer.file, "tokenizer.ggml.eos_token_id")
        )
    file = stops.obeyed_file
    return (
        Location(file=file, key=stops.keys[file]) if file else Location(file="tokenizer_config.json", key="eos_token")
    )


def _ids(stops: StopIds, file: str | None) -> str:
    return ", ".join(map(str, sorted(stops.by_file.get(file or "", ()))[:8]))


def _readers(files: list[str]) -> str:
    return " and ".join(f"{file} (for {READERS.get(file, 'others')})" for file in files)
