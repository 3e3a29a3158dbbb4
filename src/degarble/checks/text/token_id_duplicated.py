"""TOK404: one id stands for two tokens, or one token for two ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.checks.text.claim_places import MAX_SHOWN, and_more, grouped, place_of, places_of
from degarble.finding import Finding, Fix, Location
from degarble.registry import check
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

FETCH = Fix(id="fetch-tokenizer-files", safe=False)
MAX_FOUND = 20


@check("TOK404")
def token_id_duplicated(known_tokens: KnownTokens, token_claims: tuple[TokenClaim, ...]) -> Iterator[Finding]:
    """One id stands for two tokens, or one token stands under two ids.

    ## What it looks for
    Two texts with one id in the vocabulary, among the added tokens, or between both; one text under two ids, in the
    vocabulary or in the token list of a GGUF file; added tokens whose stated id the tokenizers library ignores, because
    it counts on from the highest id it has; and the same within added_tokens.json and `added_tokens_decoder`.

    ## Why output turns to garbage
    Text to ids and ids to text are no longer inverse. Which of two texts an id prints depends on the order in which the
    loader reads them; of two ids for one text, encoding uses one and the model may emit the other. Where a token was
    added over an occupied id, a word of the vocabulary has silently become a control token.

    ## What you will see
    Single words that are always wrong or missing, the same everywhere; a tool or turn marker that appears as a word; a
    loader of GGUF files that refuses the vocabulary.

    ## How to tell it from its look-alikes
    Ids without any text are holes or padding (TOK421). One text with different ids in *different* files is TOK402. The
    unused `[PAD…]` entries at the end of a GGUF list are all different, and silent.

    ## How to confirm
    Sort the vocabulary by id and look at its neighbours; or encode the text of every id and compare.

    ## How to repair it
    Fetch the tokenizer again. Not safe unattended: the file does not say which of the two the model was trained with.

    ## References
    openai/tiktoken#457, openai/gpt-oss#286, huggingface/tokenizers#1169, huggingface/text-generation-inference#1181
    """
    tokenizer = known_tokens.tokenizer
    for problem in tokenizer.problems:
        yield Finding(
            location=Location(file=tokenizer.file, key=_key_of(problem, tokenizer.file)),
            message=problem,
            measured={"problems": len(tokenizer.problems)},
            bound={"problems": 0},
            fix=FETCH,
            fold=tokenizer.file,
        )
    for text, ids in _repeated(tokenizer):
        yield Finding(
            location=Location(file=tokenizer.file, token=text[:MAX_SHOWN], token_id=ids[-1]),
            message=f"{tokenizer.file}: {text[:MAX_SHOWN]!r} stands under the ids {', '.join(map(str, ids))}",
            measured={"ids": list(ids)},
            bound={"ids": 1},
            fix=FETCH,
            fold=f"{tokenizer.file} repeated",
        )
    yield from _within_files(token_claims)


def _key_of(problem: str, file: str) -> str | None:
    """The vocabulary's readers write `file: place: what is wrong`."""
    key = problem.removeprefix(f"{file}: ").partition(": ")[0]
    return key if key in ("added_tokens", "model.vocab") else None


def _repeated(tokenizer: Tokenizer) -> list[tuple[str, tuple[int, ...]]]:
    """Texts under several ids. One comparison of sizes on a healthy vocabulary."""
    pieces: Sequence[str | None] = tokenizer.pieces
    if len(tokenizer.ids_by_piece) == len(pieces) - pieces.count(None):
        return []
    seen: dict[str, list[int]] = {}
    for at, piece in enumerate(pieces):
        if piece is not None:
            seen.setdefault(piece, []).append(at)
    return [(text, tuple(ids[:MAX_FOUND])) for text, ids in seen.items() if len(ids) > 1][:MAX_FOUND]


def _within_files(claims: Sequence[TokenClaim]) -> Iterator[Finding]:
    """Listings that contradict themselves."""
    by_id: dict[tuple[str, int], TokenClaim] = {}
    by_text: dict[tuple[str, str], TokenClaim] = {}
    doubled: list[tuple[str, TokenClaim, str]] = []
    for claim in claims:
        if claim.role is not None or claim.text is None or claim.token_id is None:
            continue
        same_id = by_id.setdefault((claim.file, claim.token_id), claim)
        same_text = by_text.setdefault((claim.file, claim.text), claim)
        if same_id.text != claim.text:
            doubled.append(
                (claim.file, claim, f"id {claim.token_id} is both {same_id.text!r:.80} and {claim.text!r:.80}")
            )
        elif same_text.token_id != claim.token_id:
            doubled.append((claim.file, claim, f"{claim.text!r:.80} is both {same_text.token_id} and {claim.token_id}"))
    told = {file: both for file, _, both in reversed(doubled)}
    for file, found in grouped((file, claim) for file, claim, _ in doubled).items():
        yield Finding(
            location=place_of(found[0]),
            places=places_of(found),
            message=f"{file}: {told[str(file)]}{and_more(found)}",
            measured={"tokens": len(found)},
            bound={"tokens": 0},
            fix=FETCH,
        )
