"""TOK411: the tokenizer is larger than the model, or far smaller."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.model import ModelConfig
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.known_tokens import KnownTokens

FETCH = Fix(id="fetch-tokenizer-files", safe=False)
CORRECT_KEY = Fix(id="correct-config-key", safe=False)
MAX_PADDING = 2048
MAX_PADDING_SHARE = 0.05
"""Published embeddings are padded by up to 1069 rows (gpt-oss) and 2 % (phi-2); more is another model's tokenizer."""


@check("TOK411", symptom_of=("CFG101", "CFG102", "CKP105", "TOK404", "TOK413"))
def vocab_size_contradicts(
    known_tokens: KnownTokens, embedding_rows: int | None = None, model_config: ModelConfig | None = None
) -> Iterator[Finding]:
    """The vocabulary is larger than the embedding or the config's `vocab_size`, or far smaller.

    ## What it looks for
    The highest id of the vocabulary proper against the rows of the embedding as stored, or, where no weights are
    there, against `vocab_size`; and the number of rows that no token has, against what padding explains.

    ## Why output turns to garbage
    A vocabulary larger than the matrix is of another model, or rows of the matrix were lost: ordinary words have no
    vector, and the head cannot produce them. A vocabulary far smaller than the matrix is of another model too: its ids
    are valid rows, and every one of them means something else.

    ## What you will see
    An index error, or a size mismatch when the weights are loaded; with a smaller vocabulary fluent-looking nonsense
    from the first token, in any language.

    ## How to tell it from its look-alikes
    Some hundred rows without a token are padding to a multiple that suits the hardware, and legal: 465 in DeepSeek-V3,
    267 in Qwen 3, 1069 in gpt-oss (TOK421 lists them). If only added tokens lie past the rows, a fine-tune added them
    without its resized weights: TOK403. `vocab_size` against the embedding alone is CFG102.

    ## How to confirm
    Count the ids of the tokenizer file, and read the first number of the embedding's shape.

    ## How to repair it
    Fetch the tokenizer that belongs to the weights, or the weights that belong to the tokenizer. Not safe unattended.

    ## References
    arcee-ai/mergekit#428, ggml-org/llama.cpp#3635, ai4sd/number-token-loss#19 (padding)
    """
    tokenizer = known_tokens.tokenizer
    size = known_tokens.num_ids
    base = len(tokenizer.pieces)
    while base and base - 1 in tokenizer.added_tokens:
        base -= 1
    stated = None if model_config is None else model_config.text.get("vocab_size")
    rows = embedding_rows
    key = None
    if rows is None and type(stated) is int and stated >= 0 and model_config is not None and model_config.gguf is None:
        rows, key = stated, model_config.place("vocab_size")
    if rows is None:
        return
    what = f"{key.file}: {key.key} is {rows}" if key is not None else f"the embedding has {rows} rows"
    here = key or Location(file=tokenizer.file)
    if base > rows:
        yield Finding(
            location=here,
            places=(here, Location(file=tokenizer.file)),
            message=f"{tokenizer.file} has {size} ids, and {what}: {base - rows} pieces of the vocabulary have no row, "
            f"the first of them {known_tokens.shown(rows)}",
            measured={"ids": size, "pieces_without_row": base - rows},
            bound={"rows": rows},
            fix=FETCH,
        )
    elif rows - size > max(MAX_PADDING, MAX_PADDING_SHARE * rows):
        yield Finding(
            location=here,
            places=(here, Location(file=tokenizer.file)),
            message=f"{tokenizer.file} has {size} ids, and {what}: {rows - size} rows have no token, which padding does not "
            "explain; it is the tokenizer of a smaller model, or a part of its own",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
            measured={"ids": size, "rows_without_token": rows - size},
            bound={"rows_without_token": round(max(MAX_PADDING, MAX_PADDING_SHARE * rows))},
            fix=FETCH,
        )
