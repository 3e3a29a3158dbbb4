"""TOK403: an id has no row in the embedding."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.text.claim_places import MAX_PLACES, and_more, grouped, place_of, places_of
from degarble.finding import Finding, Fix, Location
from degarble.registry import check
from degarble.tokenizer.foreign_tokens import NO_TOKEN
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

CORRECT = Fix(id="correct-token-id", safe=False)
RESIZE = Fix(id="resize-embedding", safe=False)


@check("TOK403", symptom_of=("CFG101", "CFG102", "CKP105", "TOK404", "TOK411", "TOK413"))
def token_id_out_of_range(
    known_tokens: KnownTokens, token_claims: tuple[TokenClaim, ...], embedding_rows: int
) -> Iterator[Finding]:
    """A token has an id for which the embedding has no row.

    ## What it looks for
    The ids of added tokens, and the ids that config.json, generation_config.json, tokenizer_config.json,
    added_tokens.json and GGUF metadata give to tokens and roles, against the rows of the embedding as stored.

    ## Why output turns to garbage
    Looking up a row that is not there raises an error on a CPU, and on a GPU either kills the context for all requests
    or reads whatever lies behind the matrix. As a stop id it can never be produced, so nothing stops.

    ## What you will see
    An index error or a device-side assertion at the first prompt that holds the token, often for all later requests as
    well; or answers that never end.

    ## How to tell it from its look-alikes
    -1 (in GGUF 4294967295) stands for "none". Rows without a token are legal padding (TOK421). If pieces of the
    vocabulary proper have no rows either, the tokenizer is of a larger model, or rows were lost: that is TOK411, and
    this finding its symptom.

    ## How to confirm
    Compare the id with the first number of the embedding's shape in the header of its shard.

    ## How to repair it
    If the token was added by a fine-tune, the embedding has to be the resized one: fetch the weights that belong to
    this tokenizer. If only a config names the id, correct it. Not safe unattended: both directions are possible.

    ## References
    huggingface/tokenizers#1609, arcee-ai/mergekit#428, kongds/E5-V#7
    """
    tokenizer = known_tokens.tokenizer
    beyond = sorted(at for at in tokenizer.added_tokens if at >= embedding_rows)
    if beyond:
        first = tokenizer.added_tokens[beyond[0]]
        place = Location(file=tokenizer.file, token=first.content, token_id=first.token_id)
        yield Finding(
            location=place,
            places=(place, *(Location(file=tokenizer.file, token_id=at) for at in beyond[1:MAX_PLACES])),
            message=f"{tokenizer.file}: {first.content!r} is {first.token_id}, and the embedding has {embedding_rows} rows, "
            f"0 to {embedding_rows - 1}" + (f"; {len(beyond) - 1} more tokens are past them" if beyond[1:] else ""),
            measured={"id": beyond[-1], "tokens": len(beyond)},
            bound={"rows": embedding_rows},
            fix=RESIZE,
        )
    outside = (
        ((claim.file, claim.role), claim)
        for claim in token_claims
        if claim.token_id is not None
        and claim.token_id not in NO_TOKEN
        and claim.token_id not in tokenizer.added_tokens
        if not 0 <= claim.token_id < embedding_rows
    )
    for claims in grouped(outside).values():
        head = place_of(claims[0])
        what = f" ({head.token!r})" if head.token is not None else ""
        yield Finding(
            location=head,
            places=places_of(claims),
            message=f"{head.file}: {head.key}{what} is {head.token_id}, and the embedding has {embedding_rows} rows, "
            f"0 to {embedding_rows - 1}{and_more(claims)}",
            measured={"id": head.token_id, "tokens": len(claims)},
            bound={"rows": embedding_rows},
            fix=CORRECT,
        )
