"""WGT227: a norm that was scaled without the weights behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.folds import consumers
from degarble.evidence.forward_pass import ForwardPass
from degarble.evidence.modules import Modules
from degarble.evidence.reference_weights import Comparison, ReferenceWeights
from degarble.finding import Confidence, Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.registry import Level, check

MAX_ERROR, MAX_COARSE_ERROR = 0.1, 0.35
"""Median |log| of what is left, in nats: rounding to three bits leaves 0.05 on sampled rows, to two bits 0.14, and 0.23 in
the product of rows and columns."""
COARSE_BITS = 2
MAX_SHARE = 0.5
"""Of the fold that may be left."""
MIN_COSINE = 0.3
"""Below it the weights are not the reference's at all: WGT228."""
MIN_COLUMNS = 16
BEFORE = {"down_proj": "up_proj", "o_proj": "v_proj", "w2": "w3"}
"""Linear -> the one whose outputs it reads one by one."""
EXPLAINED_BY = ("WGT217", "WGT221", "WGT225", "WGT209", "WGT201", "WGT216", "WGT229", *DAMAGED_FILE, *WRONG_READING)


@check("WGT227", confidence=Confidence.LIKELY, level=Level.REFERENCE, symptom_of=EXPLAINED_BY)
def fold_not_inverse(reference_weights: ReferenceWeights, modules: Modules) -> Iterator[Finding]:
    """A norm was scaled, or the columns of a weight behind it, without the other being scaled back.

    ## What it looks for
    AWQ, SmoothQuant and similar methods divide the gain of a norm by s and multiply the columns of **every** weight
    that reads it by s. Against the reference, the ratio of the gains (1 + w in Gemma and Qwen3-Next) times the ratio of
    the columns (least squares over sampled rows) must be 1 in every channel, for q, k and v, for gate and up, and for
    the router. Reported where the median |log| of the product is above 0.1 (0.35 at two bits, whose rounding changes
    the size of whole columns) and above half of the fold: unfolded and rightly folded files leave 0.08 at most from
    three bits on, 0.14 at two. Measured on 14,670 weights of 128 checkpoints: docs/calibration.md.

    ## Why output turns to garbage
    One consumer then reads a hidden state in which some channels are many times too large. v_proj and the router are
    forgotten most often, since nothing is quantised by their scales, and norms of the kind 1 + w, where dividing w is
    not dividing the gain.

    ## What you will see
    For v_proj hardly anything: KL 0.175, below healthy 4-bit noise, and "Paris" is still the answer; for 1 + w norms
    noise (perplexity 24,000). Without the source nothing can prove it.

    ## How to tell it from its look-alikes
    o_proj without a fold is by design where key heads are shared. A fold that every consumer undoes is healthy, however
    large. Weights that are not the reference's at all are WGT228.

    ## How to confirm
    Divide one column of the named weight by the reference's, and the norm's value by the reference's: the product is
    not 1.

    ## How to repair it
    Multiply the columns of the named module by the inverse of the norm's ratio and quantise it again; if no consumer
    was scaled, copy the norm from the reference, which is safe unattended.

    ## References
    kekzl/imp#1162, vllm-project/llm-compressor#2102, vllm-project/llm-compressor#2500, vllm-project/llm-compressor#2522
    """
    readers = consumers({name: one.module for name, one in reference_weights.comparisons.items()}, modules)
    for fold in reference_weights.folds:
        behind = readers.get(fold.norm.canonical or "", [])
        found = {
            module.name: error
            for module in behind
            if (error := _error(reference_weights.comparisons[module.name])) is not None
        }
        wrong = {
            name: error
            for name, error in found.items()
            if _is_wrong(fold.logs, error, reference_weights.comparisons[name])
        }
        if wrong and len(wrong) == len(found) and len(found) > 1 and fold.size > _max_error(behind[0]):
            yield _finding(fold.norm, fold.norm, next(iter(wrong.values())), len(wrong), None)
        else:
            for name, error in wrong.items():
                yield _finding(modules[name], fold.norm, error, len(found), name)


def _error(compared: Comparison) -> float | None:
    """Median |log| of gain ratio times column ratio; None where the weights are not alike at all."""
    return _median(compared.column_logs) if not compared.is_zero and compared.cosine > MIN_COSINE else None


def _median(logs: Array) -> float | None:
    known = logs[~np.isnan(logs)]
    return float(np.median(np.abs(known))) if known.size >= MIN_COLUMNS and known.size * 2 >= logs.size else None


def _max_error(module: StoredModule) -> float:
    """Rounding to very few bits changes the size of whole columns."""
    scheme = module.form.scheme
    is_coarse = scheme is not None and scheme.num_bits is not None and scheme.num_bits <= COARSE_BITS
    return MAX_COARSE_ERROR if is_coarse else MAX_ERROR


def _is_wrong(logs: Array, error: float, compared: Comparison) -> bool:
    """A weight that is larger throughout, behind a norm that nobody touched, is WGT228's."""
    columns = compared.column_logs - logs  # before the norm's fold was put back
    fold = max(float(np.median(np.abs(logs))), float(np.nanmedian(np.abs(columns))))
    is_uniform = float(np.nanmedian(np.abs(columns - np.nanmedian(columns)))) < MAX_ERROR / 2 and not np.abs(logs).any()
    return error > _max_error(compared.module) and error > MAX_SHARE * fold and not is_uniform


@check("WGT227", confidence=Confidence.LIKELY, level=Level.REFERENCE, symptom_of=EXPLAINED_BY)
def rows_not_undone(reference_weights: ReferenceWeights, modules: Modules) -> Iterator[Finding]:
    """Outputs of up_proj (or v_proj) were scaled, and the inputs of down_proj (or o_proj) not scaled back."""
    by_name = {one.module.canonical: one for one in reference_weights.comparisons.values()}
    for name, second in by_name.items():
        parent, _, leaf = (name or "").rpartition(".")
        first = by_name.get(f"{parent}.{BEFORE[leaf]}") if leaf in BEFORE else None
        if first is None or min(first.cosine, second.cosine) < MIN_COSINE or first.is_zero or second.is_zero:
            continue
        if len(second.column_logs) != (first.module.form.shape or (0,))[0]:
            continue  # key heads are shared: no tool folds here
        rows = np.concatenate([np.arange(start, stop) for start, stop in first.outputs])
        left, right = first.row_logs, second.column_logs[rows]
        error, fold = _median(left + right), max(_median(left) or 0.0, _median(right) or 0.0)
        spread = float(np.nanmedian(np.abs(left + right - np.nanmedian(left + right))))
        if (
            error is not None
            and error > _max_error(second.module)
            and error > MAX_SHARE * fold
            and (spread > MAX_ERROR / 2 or _both(left, right))
        ):
            yield _rows_finding(first.module, second.module, error)


@check("WGT227", confidence=Confidence.LIKELY, level=Level.FORWARD, symptom_of=("DIV903", "DIV902"))
def fold_not_inverse_on_activations(forward_pass: ForwardPass) -> Iterator[Finding]:
    """The same in `degarble compare`: of the weights behind a norm some undo its fold and this one does not."""
    for one in forward_pass.misfits:
        if one.norm is not None:
            yield Finding(
                location=one.location,
                message=f"{one.module} does not undo the fold of {one.norm}, as others behind it do: on the reference's "
                f"input its output is {one.relative:.0%} away",
                measured={"relative_error": round(one.relative, 4), "cosine_similarity": round(one.cosine, 4)},
                fix=Fix(id="fold-consumer", safe=False),
            )


def _both(left: Array, right: Array) -> bool:
    """Whether both sides were scaled: one side alone, evenly, is a gain (WGT228)."""
    return min(_median(left) or 0.0, _median(right) or 0.0) > MAX_ERROR


def _rows_finding(first: StoredModule, second: StoredModule, error: float) -> Finding:
    return Finding(
        location=second.place(),
        message=f"{second.name} does not undo the scaling of {first.name}: row ratio times column ratio is off by "
        f"{error:.2f} nats in the median neuron, expected 0",
        measured={"median_log_error": round(error, 3)},
        bound={"max": _max_error(second)},
        fix=Fix(id="fold-consumer", safe=False),
        fold=f"rows of {first.template.rpartition('.')[2]}",
    )


def _finding(place: StoredModule, norm: StoredModule, error: float, count: int, consumer: str | None) -> Finding:
    what = (
        f"{norm.name} was scaled, and none of the {count} weights behind it scaled back"
        if consumer is None
        else f"{consumer} does not undo the fold of {norm.name}"
    )
    return Finding(
        location=replace(place.place()),
        message=f"{what}: norm ratio times column ratio is off by {error:.2f} nats in the median channel, expected 0",
        measured={"median_log_error": round(error, 3)},
        bound={"max": _max_error(place)},
        fix=Fix(id="copy-norm" if consumer is None else "fold-consumer", safe=consumer is None),
        fold="norm" if consumer is None else f"consumer {place.template.rpartition('.')[2]}",
    )
