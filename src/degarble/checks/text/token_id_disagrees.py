"""TOK402: two files give one token different ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set

from degarble.checks.text.claim_places import MAX_PLACES, MAX_SHOWN, and_more, grouped, place_of, places_of
from degarble.evidence.vocabulary_beside import VocabularyBeside
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.families import ROLES, Family
from degarble.tokenizer.foreign_tokens import NO_TOKEN
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.pipeline_claims import pipeline_claims
from degarble.tokenizer.token_claims import TokenClaim

CORRECT_ID = Fix(id="correct-token-id", safe=True)
CHOOSE = Fix(id="correct-token-id", safe=False)
STOPS = ("eos_token", "eot_token", "eom_token")
"""Files may list different stop ids and all be right; TPL506 and TPL507 judge them together."""


@check("TOK402", symptom_of=("TOK404", "TOK406", "TOK411", "TOK413"))
def token_id_disagrees(known_tokens: KnownTokens, token_claims: tuple[TokenClaim, ...]) -> Iterator[Finding]:
    """Two files of one checkpoint give the same token different ids.

    ## What it looks for
    Every pair of text and id outside the vocabulary (`added_tokens_decoder`, added_tokens.json, what tokenizer.json's
    post-processor inserts) against the vocabulary; the ids that config.json and generation_config.json give to bos, pad
    and the other roles against the texts that tokenizer_config.json and special_tokens_map.json give them; and a second
    vocabulary in the folder (tokenizer.model or vocab.json beside tokenizer.json, tokenizer.json beside a GGUF file)
    piece by piece. Where more files agree against tokenizer.json than with it, tokenizer.json is the one that is named.

    ## Why output turns to garbage
    One program encodes with one file, another counts, masks or stops with the other. The model gets a vector that
    belongs to another token, or a stop id that never comes. With two vocabularies, whole texts are encoded differently
    depending on which file the loader prefers.

    ## What you will see
    Good answers in one engine and nonsense in another from the same folder; a missing or doubled BOS; padding that is
    read as text in batches, but not for single requests.

    ## How to tell it from its look-alikes
    Different stop ids in different files are normal: base models stop at the end of a text, chat models at the end of a
    turn, and engines take the union; TPL506 and TPL507 look at that union. A pad id of another special token is a
    choice. An R1 distill keeps its base model's bos id in config.json. A text that the vocabulary lacks is TOK401.

    ## How to confirm
    Look the text up in the vocabulary, and the id in the other file.

    ## How to repair it
    Write the vocabulary's id into the file that is outvoted. Safe unattended when a single entry differs from a
    vocabulary that all other files agree with; not where two whole vocabularies differ.

    ## References
    Lex-au/Orpheus-FastAPI#65, unslothai/unsloth#188, ggml-org/llama.cpp#3635
    """
    all_claims = (*token_claims, *pipeline_claims(known_tokens.tokenizer))
    differing = [claim for claim in all_claims if _differs(claim, known_tokens)]
    outvoted = _outvoted({claim.text for claim in differing}, known_tokens, token_claims)
    for claims in grouped(((claim.file, claim.text in outvoted), claim) for claim in differing).values():
        text, there = claims[0].text or "", claims[0].token_id
        here = known_tokens.id_of(text)
        own = tuple(_own_place(claim.text or "", known_tokens) for claim in claims[:MAX_PLACES])
        mine = own[0]
        is_outvoted = text in outvoted
        yield Finding(
            location=mine if is_outvoted else place_of(claims[0]),
            places=(*own, *places_of(claims)) if is_outvoted else places_of(claims, *own),
            message=f"{text[:MAX_SHOWN]!r} is {there} in {claims[0].file} and {here} in {mine.file}"
            + (f", which {outvoted[text]} other files contradict" if is_outvoted else "")
            + and_more(claims),
            measured={"id": here if is_outvoted else there, "tokens": len(claims)},
            bound={"id": there if is_outvoted else here, "tokens": 0},
            fix=CHOOSE if is_outvoted else CORRECT_ID,
        )


def _own_place(text: str, known: KnownTokens) -> Location:
    return Location(file=known.tokenizer.file, token=text[:MAX_SHOWN], token_id=known.id_of(text))


def _differs(claim: TokenClaim, known: KnownTokens) -> bool:
    if claim.text is None or claim.token_id is None:
        return False
    return known.id_of(claim.text) not in (None, claim.token_id)


def _outvoted(disputed: Set[str | None], known: KnownTokens, claims: Sequence[TokenClaim]) -> dict[str, int]:
    """Texts whose id two files or more agree on, none with the vocabulary; and how many files do."""
    voices = {(claim.file, claim.text, claim.token_id) for claim in claims if claim.text in disputed}
    votes: dict[str, Counter[int]] = {}
    for _, text, token_id in voices:
        if text is not None and token_id is not None:
            votes.setdefault(text, Counter())[token_id] += 1
    found: dict[str, int] = {}
    for text, counts in votes.items():
        _, count = counts.most_common(1)[0]
        if count > 1 and known.id_of(text) not in counts:
            found[text] = count
    return found


@check("TOK402", symptom_of=("TOK403", "TOK404", "TOK406", "TOK411", "TOK413"))
def role_id_disagrees(
    known_tokens: KnownTokens, token_claims: tuple[TokenClaim, ...], token_families: tuple[Family, ...]
) -> Iterator[Finding]:
    """A config gives a role to the id of another token than the tokenizer's files name."""
    texts: dict[str, list[TokenClaim]] = {}
    for claim in token_claims:
        if claim.role is not None and claim.role not in STOPS and claim.text is not None:
            texts.setdefault(claim.role, []).append(claim)
    ids = {role: {known_tokens.id_of(one.text or "") for one in named} - {None} for role, named in texts.items()}
    wrong = (
        ((claim.file, claim.role, severity), claim)
        for claim in token_claims
        if claim.text is None and claim.token_id not in NO_TOKEN and ids.get(claim.role or "")
        if claim.token_id not in ids[claim.role or ""]
        if (severity := _severity(claim, claim.token_id or 0, known_tokens, token_families)) is not None
    )
    for claims in grouped(wrong).values():
        claim, other = claims[0], texts[claims[0].role or ""][0]
        right = sorted(at for at in ids[claim.role or ""] if at is not None)
        severity = _severity(claim, claim.token_id or 0, known_tokens, token_families)
        yield Finding(
            location=place_of(claim),
            places=places_of(claims, place_of(other)),
            message=f"{claim.file}: {claim.key} is {claim.token_id}, {known_tokens.shown(claim.token_id or 0)}; {other.file} "
            f"calls {other.text!r:.100} the {claim.role}, which is {', '.join(map(str, right))}{and_more(claims)}",
            severity=severity,
            measured={"id": claim.token_id},
            bound={"id": right[0]},
            fix=CORRECT_ID if len(right) == 1 and severity is Severity.ERROR else CHOOSE,
        )


def _severity(claim: TokenClaim, token_id: int, known: KnownTokens, home: Sequence[Family]) -> Severity | None:
    """Another special token may be meant; for BOS it changes what a prompt begins with."""
    if not known.is_special(token_id):
        return Severity.ERROR
    if claim.role != "bos_token" or any(token_id in family.role_ids[ROLES[claim.role]] for family in home):
        return None
    return Severity.WARNING


@check("TOK402", symptom_of=("TOK404", "TOK406", "TOK413"))
def vocabularies_disagree(
    known_tokens: KnownTokens, vocabularies_beside: tuple[VocabularyBeside, ...]
) -> Iterator[Finding]:
    """A second vocabulary in the folder gives pieces other ids."""
    tokenizer = known_tokens.tokenizer
    mine = tokenizer.ids_by_piece
    for other in vocabularies_beside:
        moved = [text for text, at in other.ids.items() if mine.get(text, at) != at]
        if not moved:
            continue
        text = moved[0]
        place = Location(file=other.file, key=text if other.file.endswith(".json") else None, token=text[:MAX_SHOWN])
        yield Finding(
            location=place,
            places=(place, Location(file=other.file), Location(file=tokenizer.file, token=text[:MAX_SHOWN])),
            message=f"{len(moved)} of {len(other.ids)} pieces of {other.file} have another id in {tokenizer.file}, such as "
            f"{text[:MAX_SHOWN]!r}: {other.ids[text]} there, {mine[text]} here; which file is read depends on the loader",
            measured={"pieces": len(moved), "id": other.ids[text]},
            bound={"pieces": 0, "id": mine[text]},
            fix=CHOOSE,
        )
