"""Plants TOK411."""

from __future__ import annotations

from degarble.checks.text.vocab_size_contradicts import MAX_PADDING, MAX_PADDING_SHARE
from degarble.evidence.model import ModelConfig
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import known_tokens_of
from degarble.finding import Location


def resize_embedding(patient: Patient, rows: int) -> None:
    """Cut the embedding and an untied head, or lengthen them by zeros; the config follows.

    Raises NotApplicable where they are not stored plain.
    """
    config: ModelConfig | None = patient.evidence.find("model_config")
    if (
        config is None
        or config.gguf is not None
        or config.text is not config.values
        or "vocab_size" not in config.values
    ):
        raise NotApplicable("no plain config.json with a vocab_size")
    ends = patient.modules(lambda module: module.canonical in ("model.embed_tokens", "lm_head"))
    if any(module.form.format != "plain" for module in ends):
        raise NotApplicable("embedding or head are quantised")
    for part in (module.any_part for module in ends):
        if len(part.shape) != 2:
            raise NotApplicable("the embedding is no matrix")
        count, width = part.shape
        data = patient.workspace.base.read(part.file, part.start, part.end - part.start)
        row_bytes = len(data) // count
        data = data[: rows * row_bytes] + bytes(max(0, rows - count) * row_bytes)
        patient.workspace.holder(part.name).set(part.name, part.dtype, (rows, width), data)
    patient.workspace.json("config.json")["vocab_size"] = rows


def _sizes(patient: Patient) -> tuple[int, int]:
    """One more than the highest id of the vocabulary proper, and rows. Raises NotApplicable where they contradict."""
    tokenizer = known_tokens_of(patient).tokenizer
    rows: int | None = patient.evidence.find("embedding_rows")
    base = len(tokenizer.pieces)
    while base and base - 1 in tokenizer.added_tokens:
        base -= 1
    if rows is None or rows < base or base < 100:
        raise NotApplicable("no embedding that holds the vocabulary")
    return base, rows


@fault("TOK411")
def vocab_size_contradicts(patient: Patient) -> Location:
    """Cut the embedding (and an untied head, and the config) below the vocabulary, as a mixed-up base model would be."""
    base, _ = _sizes(patient)
    resize_embedding(patient, base - 1 - patient.rng.randrange(base // 20))
    return Location(file=known_tokens_of(patient).tokenizer.file)


@fault("TOK411")
def tokenizer_of_smaller_model(patient: Patient) -> Location:
    """Give the model far more rows than the tokenizer has ids."""
    _, rows = _sizes(patient)
    resize_embedding(patient, int((rows + MAX_PADDING) * (1 + 2 * MAX_PADDING_SHARE)) + 1)
    return Location(file=known_tokens_of(patient).tokenizer.file)
