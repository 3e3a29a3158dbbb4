"""CFG105: the tie flag says one weight, and the disk holds two."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from degarble.architectures.interface import Architecture
from degarble.checkpoint.interface import TensorInfo, element_bits
from degarble.checkpoint.tensor_data import DTYPES, TensorReader
from degarble.checks.config.lm_head_missing import is_headless
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import Level, check

KEY = "tie_word_embeddings"
CHUNK_BYTES = 16 << 20
"""Read at a time while comparing: a head of 2 GB must not be held twice."""

CORRECT_FLAG = Fix(id="correct-tie-flag", safe=True)


@check("CFG105", symptom_of=("CKP101", "CKP102", "CKP105", "CFG102", "QNT114"))
def tie_flag_contradicts(
    modules: Modules, model_config: ModelConfig, is_gguf: bool, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """The config ties the output head to the embedding, and a head of its own is stored.

    ## What it looks for
    `tie_word_embeddings` at both levels of the config (the outer one and the language model's) against an `lm_head` on
    disk. At header level: a head whose shape is not the embedding's, or two levels that contradict each other while no
    head is stored. With contents: whether the stored head has other values than the embedding, compared piece by piece.

    ## Why output turns to garbage
    An engine that believes the flag throws the stored head away and multiplies with the embedding instead. Which level
    it reads differs between engines, so one serves the model well and the next does not.

    ## What you will see
    Fluent vocabulary and wrong words, the same on every prompt; perplexity near the size of the vocabulary. No warning.

    ## How to tell it from its look-alikes
    A head with the embedding's own values is a legal copy: some tools write both. A quantised head or embedding of a
    tied model is QNT114. No head and no tie is CFG106. GGUF has no flag. Embeddings of models that only the outer level
    calls tied are judged by what is stored, not by which level is right.

    ## How to confirm
    Compare the bytes of `lm_head.weight` and `embed_tokens.weight`.

    ## How to repair it
    Set the flag to false at every level that has it. Safe unattended: the stored head differs, so it was trained or
    exported on its own, and readers that ignored the flag already use it.

    ## References
    vllm-project/vllm#51063
    """
    ties = _ties(model_config, architecture)
    if is_gguf or not any(ties.values()):
        return
    head, embedding = modules.by_canonical.get("lm_head"), modules.by_canonical.get("model.embed_tokens")
    if head is None:
        if not all(ties.values()) and not is_headless(model_config):
            yield _levels_disagree(model_config, ties)
        return
    if embedding is None or head.form.is_quantized or embedding.form.is_quantized:
        return
    mine, theirs = head.payload, embedding.payload
    if mine is not None and theirs is not None and mine.shape != theirs.shape:
        message = f"{mine.name} is {list(mine.shape)}, {theirs.name} is {list(theirs.shape)}"
        yield _distinct(model_config, ties, head, message, len(mine.shape))


@check("CFG105", level=Level.CONTENT, symptom_of=("CKP101", "CKP102", "CKP105", "CFG102", "QNT114"))
def tie_flag_contradicts_values(
    modules: Modules, model_config: ModelConfig, is_gguf: bool, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """The contents half: a head of the same shape with other values."""
    ties = _ties(model_config, architecture)
    head, embedding = modules.by_canonical.get("lm_head"), modules.by_canonical.get("model.embed_tokens")
    if is_gguf or not any(ties.values()) or head is None or embedding is None:
        return
    if head.form.format != "plain" or embedding.form.format != "plain":
        return
    mine, theirs = head.payload, embedding.payload
    if mine is None or theirs is None or mine.shape != theirs.shape or not mine.nbytes:
        return
    element = first_difference(head.reader, mine, theirs)
    if element is None:
        return
    row, col = divmod(element, mine.shape[-1])
    message = f"{mine.name} has other values than {theirs.name}, first at [{row}, {col}]"
    yield _distinct(model_config, ties, head, message, element)


def first_difference(reader: TensorReader, one: TensorInfo, other: TensorInfo) -> int | None:
    """Number of the first element that differs; a copy cast to a narrower type is no difference."""
    if one.dtype not in DTYPES or other.dtype not in DTYPES:
        return None
    widths = (element_bits(one.dtype) or 8) // 8, (element_bits(other.dtype) or 8) // 8
    step = CHUNK_BYTES // max(widths)
    narrow = one.dtype if widths[0] <= widths[1] else other.dtype
    for start in range(0, one.nbytes // widths[0], step):
        pieces = []
        for info, width in ((one, widths[0]), (other, widths[1])):
            length = min(step * width, info.nbytes - start * width)
            piece = TensorInfo(info.name, info.dtype, (length // width,), info.file, info.start + start * width, length)
            pieces.append(reader.read(piece))
        if one.dtype != other.dtype:
            pieces = [piece.astype(np.float32).astype(DTYPES[narrow]) for piece in pieces]
        raw = [piece.view(f"u{piece.dtype.itemsize}") for piece in pieces]
        if raw[0].size != raw[1].size:
            return start
        different = np.flatnonzero(raw[0] != raw[1])
        if different.size and not _is_rounding(one.dtype, other.dtype, pieces, different):
            return start + int(different[0])
    return None


def _is_rounding(one: str, other: str, pieces: list[np.ndarray], different: np.ndarray) -> bool:
    """bf16 and fp16 hold different bits of one value: then a hundredth is rounding."""
    if one == other:
        return False
    mine, theirs = (piece[different].astype(np.float32) for piece in pieces)
    return bool(np.all(np.abs(mine - theirs) <= 0.01 * np.abs(theirs) + 1e-6))


def _ties(config: ModelConfig, architecture: Architecture | None) -> dict[str, bool]:
    """Dotted key -> flag, for each level that has one; the family's default where none has."""
    found: dict[str, bool] = {}
    outer, inner = config.values.get(KEY), config.text.get(KEY)
    if isinstance(outer, bool):
        found[KEY] = outer
    if isinstance(inner, bool):
        found[config.places.get(KEY, KEY)] = inner
    if not found and architecture is not None:
        found[config.places.get(KEY, KEY)] = architecture.tied
    return found


def _levels_disagree(config: ModelConfig, ties: dict[str, bool]) -> Finding:
    said = ", ".join(f"{key} is {str(flag).lower()}" for key, flag in ties.items())
    return Finding(
        location=Location(file=config.file, key=next(key for key, flag in ties.items() if not flag)),
        message=f"{said}, and no head is stored: an engine that reads the first false one builds a head of noise",
        severity=Severity.WARNING,
        measured={"levels": [f"{key}={flag}" for key, flag in ties.items()]},
        bound={"levels": "equal"},
        fix=Fix(id="correct-tie-flag", safe=False),
    )


def _distinct(config: ModelConfig, ties: dict[str, bool], head: StoredModule, message: str, element: int) -> Finding:
    key = next(key for key, flag in ties.items() if flag)
    levels = "" if all(ties.values()) else " at one of its two levels"
    place = head.place()
    return Finding(
        location=Location(file=config.file, key=key, tensor=place.tensor, module=head.name),
        places=(
            Location(file=config.file, key=key, tensor=place.tensor, module=head.name),
            Location(file=place.file, key=key, tensor=place.tensor, module=head.name),
        ),
        message=f"{config.file} ties the head to the embedding ({key} is true{levels}), and {message}",
        measured={"first_difference": element},
        bound={KEY: False},
        fix=CORRECT_FLAG,
    )
