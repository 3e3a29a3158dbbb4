"""TOK401: a file names a token that the vocabulary does not have."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.text.claim_places import and_more, grouped, place_of, places_of
from degarble.finding import Finding, Fix, Severity
from degarble.registry import check
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.pipeline_claims import pipeline_claims
from degarble.tokenizer.token_claims import TokenClaim

CORRECT = Fix(id="correct-special-token", safe=False)
IDLE_ROLES = ("unk_token", "sep_token", "cls_token", "mask_token")
"""No prompt and no answer of a decoder needs them, so a new id for one is never used."""


@check("TOK401", symptom_of=("TOK404", "TOK406", "TOK413"))
def special_token_unknown(
    known_tokens: KnownTokens, token_claims: tuple[TokenClaim, ...], embedding_rows: int | None = None
) -> Iterator[Finding]:
    """A file names a special token whose text the vocabulary does not have.

    ## What it looks for
    Every text in special_tokens_map.json, tokenizer_config.json (roles, lists and `added_tokens_decoder`) and
    added_tokens.json, and every text that tokenizer.json's own post-processor inserts. Each is looked up in the
    vocabulary that the model was trained with: tokenizer.json, or tokenizer.model together with what these files
    append to it, or the token list of a GGUF file.

    ## Why output turns to garbage
    Loaders do not complain. They append the text as a new id behind the vocabulary. The model never emits that id, so
    an end-of-turn token of this kind ends nothing; it has never seen it, so a BOS of this kind disturbs every prompt;
    and if the new id is past the last row of the embedding, the first prompt that holds it crashes the engine.

    ## What you will see
    Answers that run to the token limit; a worse model than the one you know; an index out of range in the embedding.

    ## How to tell it from its look-alikes
    If the names are those of another published model, the file was copied from there, and TOK413 says which. A token
    that is there under another id is TOK402. tokenizer.model holds no added tokens by itself: what added_tokens.json or
    `added_tokens_decoder` list past its end is counted as known. Unknown texts for unk, sep, cls and mask are a
    warning, since a decoder uses none of them.

    ## How to confirm
    `tokenizers.Tokenizer.from_file("tokenizer.json").token_to_id(text)` gives None.

    ## How to repair it
    Write the name that the vocabulary has, or fetch the file again from the release of the weights. Not safe
    unattended: which of the existing tokens was meant is not in the files.

    ## References
    oobabooga/textgen#931, unslothai/unsloth#188
    """
    tokenizer = known_tokens.tokenizer
    unknown = (
        ((claim.file, claim.role is None, claim.role in IDLE_ROLES), claim)
        for claim in (*token_claims, *pipeline_claims(tokenizer))
        if claim.text and known_tokens.id_of(claim.text) is None and not _may_be_appended(claim, known_tokens)
    )
    new = known_tokens.num_ids
    is_past = embedding_rows is not None and new >= embedding_rows
    effect = f"past the {embedding_rows} rows of the embedding" if is_past else "which the model was never trained on"
    for claims in grouped(unknown).values():
        first = place_of(claims[0])
        yield Finding(
            location=first,
            places=places_of(claims),
            message=f"{first.file}: {first.key} names {first.token!r}, which is not in {tokenizer.file}: loaders append it "
            f"as a new id, {new} or above, {effect}{and_more(claims)}",
            severity=Severity.WARNING if claims[0].role in IDLE_ROLES else None,
            measured={"unknown": len(claims), "new_id": new},
            bound={"ids": tokenizer.num_ids, "rows": embedding_rows},
            fix=CORRECT,
        )


def _may_be_appended(claim: TokenClaim, known: KnownTokens) -> bool:
    """Loaders of sentencepiece models extend them by lists of their own: language codes, `<extra_id_0>` and so on."""
    if not known.is_sentencepiece:
        return False
    return known.tokenizer.file != "tokenizer.model" or claim.role in ("additional_special_tokens", *IDLE_ROLES)
