"""`degarble overflow`: in which dtype, engine and length a model stays finite."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from degarble.engines.arithmetic import engine_arithmetic
from degarble.errors import EvidenceMissing, UsageError
from degarble.registry import rules_on
from degarble.report.interface import Report
from degarble.runner import run
from degarble_engine.numerics.tokens import TokenBatch, batch_of, built_in_texts, encode, random_batch, tokenizer_of
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.advice import advice
from degarble_engine.overflow.budget import affordable
from degarble_engine.overflow.range_walk import range_walk
from degarble_engine.overflow.switches import NAMES, lanes_of
from degarble_engine.overflow.verdict import evidence_of, table
from degarble_engine.walked_report import read_raw, walked_report

SHORT_TOKENS = 16
MAX_LENGTH = 1 << 17
MAX_MASK_BYTES = 4 << 30
"""The family's own code makes a mask of [tokens, tokens] in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowQuestion:
    """What a caller asks."""

    dtypes: Sequence[str] = ("fp16", "bf16")
    engines: Sequence[str] | None = None
    lengths: Sequence[int] = (16, 32, 64, 128, 256)
    texts: Sequence[str] | None = None
    progress: Watch | None = None
    budget_seconds: float | None = None
    """Longer lengths that would take more are named and not run."""


def read_lengths(text: str) -> tuple[int, ...]:
    """`512`, `128,512,4k` or `512..32k` (doubling). Raises UsageError."""
    found: list[int] = []
    for part in text.lower().split(","):
        ends = [_length(one, text) for one in part.split("..")]
        if len(ends) > 2 or ends[0] > ends[-1]:
            raise UsageError(f"--lengths {text!r}: expected 512, 128,512 or 512..32k")
        length = ends[0]
        while length < ends[-1]:
            found.append(length)
            length *= 2
        found.append(ends[-1])
    return tuple(sorted(set(found)))


def _length(part: str, text: str) -> int:
    found = re.fullmatch(r"\s*(\d{1,6})(k?)\s*", part)
    length = int(found[1]) * (1024 if found[2] else 1) if found else 0
    if not 1 <= length <= MAX_LENGTH:
        raise UsageError(f"--lengths {text!r}: expected numbers of tokens from 1 to {MAX_LENGTH}, such as 512..32k")
    if 4 * length * length > MAX_MASK_BYTES:
        raise UsageError(f"--lengths {text!r}: {length} tokens need a mask of more than {MAX_MASK_BYTES >> 30} GiB")
    return length


def overflow(target: str, question: OverflowQuestion) -> Report:
    """Run one checkpoint. Raises TargetError where it cannot be run, UsageError for a name that is none."""
    for dtype in question.dtypes:
        if dtype not in NAMES:
            raise UsageError(f"--dtype {dtype!r}: expected {', '.join(NAMES)}")
    for engine in question.engines or ():
        engine_arithmetic(engine)
    found: Report = overflow_of(WalkedModel.open(target), question)
    return found


def overflow_of(model: WalkedModel, question: OverflowQuestion) -> Report:
    """The same for an opened model."""
    lanes = lanes_of(question.dtypes, question.engines)
    left_out: dict[str, str] = {}
    if question.budget_seconds is not None:
        fitting, left_out = affordable(model, lanes, question.lengths, question.budget_seconds)
        question = replace(question, lengths=fitting)
    walk = range_walk(model, _batches(model, question), lanes, question.progress)
    model.evidence.supply("overflow_walk", evidence_of(walk, lanes))
    return walked_report(
        model,
        run(model.evidence, list(rules_on("overflow_walk").values())),
        {**walk.inputs.unjudged, **walk.inputs.unseen(), **read_raw(model), **_length_dependent(model), **left_out},
        table(walk, lanes, question.lengths) | {"advice": advice(walk, lanes, model.evidence.get("source"))},
    )


def _length_dependent(model: WalkedModel) -> dict[str, str]:
    """Rotary embeddings that change with the length: a beginning of a long text is then not the short text."""
    rope = model.config_values.get("rope_parameters") or model.config_values.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else None
    if kind not in ("dynamic", "longrope"):
        return {}
    return {"max_safe_length": f"rope {kind} changes with the length: only the longest length was run"}


def _batches(model: WalkedModel, question: OverflowQuestion) -> list[TokenBatch]:
    """Short texts side by side, and one sequence of the longest length."""
    texts = list(question.texts) if question.texts is not None else built_in_texts()
    longest = max(question.lengths)
    try:
        short = encode(texts, [model.evidence], "texts", max_tokens=min(SHORT_TOKENS, longest))
    except EvidenceMissing:
        if question.texts is not None:
            raise UsageError("texts were given, and the model has no tokenizer.json that could be read") from None
        return [
            random_batch(model.vocab_size, 4, min(SHORT_TOKENS, longest)),
            random_batch(model.vocab_size, 1, longest),
        ]
    tokenizer = tokenizer_of(model.evidence)
    assert tokenizer is not None
    ids = tokenizer.encode("\n\n".join(texts)).ids
    return [short, batch_of([(ids * (longest // max(1, len(ids)) + 1))[:longest]], "texts, one after the other")]
