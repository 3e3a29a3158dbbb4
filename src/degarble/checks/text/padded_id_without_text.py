"""TOK421: rows of the embedding that no token has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.evidence.store import Settings
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.known_tokens import KnownTokens

MASK = Fix(id="mask-padded-ids", safe=False)
CRASHES: Mapping[str, str] = {"vllm": "vllm-project/vllm#56100"}
"""Engines whose output handler ends at the first id without a text; no release that fixes it is known."""


@check("TOK421", severity=Severity.INFO)
def padded_id_without_text(known_tokens: KnownTokens, embedding_rows: int, settings: Settings) -> Iterator[Finding]:
    """The embedding has rows for ids that stand for no text.

    ## What it looks for
    Ids from the end of the vocabulary to the last row of the embedding, and holes in between, that have no string.

    ## Why output turns to garbage
    The head has a logit for each of these rows. In a healthy model they are never the largest. Quantisation noise, a
    broken head or a high temperature can pick one: it prints nothing, and some engines cannot print nothing.

    ## What you will see
    Usually nothing. A blank in an answer that nobody can explain; with vLLM, an answer that never comes, and errors for
    every request after it until the server is restarted.

    ## How to tell it from its look-alikes
    Padding is legal, so this is information: Qwen 3 has 267 such ids, DeepSeek-V3 465. It is an error only with
    `--engine` of an engine that is known to end at such an id. In a GGUF file padded ids have `[PAD…]` strings of the
    unused type, which llama.cpp prints as nothing; they count as text here. If the number is far beyond padding, the
    tokenizer is another model's: TOK411.

    ## How to confirm
    Ask the endpoint for the most likely tokens of a prompt, and look for ids at or past the end of the vocabulary.

    ## How to repair it
    Mask these ids in the sampler (a logit bias of minus infinity, or bad_words by id). Not safe unattended: it changes
    the deployment, not the file.

    ## References
    vllm-project/vllm#56100, vllm-project/vllm#33832, PrimeIntellect-ai/prime-rl#3304, pegainfer-project/pegainfer#673
    """
    pieces = known_tokens.tokenizer.pieces
    holes = pieces[:embedding_rows].count(None)
    padded = max(0, embedding_rows - known_tokens.num_ids)
    if not holes + padded:
        return
    first = pieces.index(None) if holes else known_tokens.num_ids
    issue = CRASHES.get((settings.engine or "").lower())
    effect = f"; {settings.engine} ends at the first one that is sampled ({issue})" if issue else ""
    yield Finding(
        location=Location(file=known_tokens.tokenizer.file, token_id=first),
        message=f"{holes + padded} ids have a row in the embedding and no text, the first of them {first}: "
        f"{known_tokens.num_ids} ids in {known_tokens.tokenizer.file}, {embedding_rows} rows{effect}",
        severity=Severity.ERROR if issue else None,
        confidence=Confidence.LIKELY if issue else None,
        measured={"ids_without_text": holes + padded},
        bound={"ids": known_tokens.num_ids, "rows": embedding_rows},
        fix=MASK,
    )
