"""Evidence from a healthy copy: every weight against the same weight there, one module at a time, on sampled outputs.

What a fold moved from a weight into the norm before it (or into the rows of the linear before it) is put back first:

    w_target[:, j] * norm_target[j]   against   w_reference[:, j] * norm_reference[j]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

import msgspec
import numpy as np

from degarble.architectures.interface import Architecture
from degarble.checkpoint.tensor_data import Array
from degarble.errors import EvidenceMissing
from degarble.evidence.block_look import rotary_rows
from degarble.evidence.folds import Fold, folds_of, norm_before
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.store import Evidence, Settings, provides
from degarble.formats.agreement import bits_of, shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import Runs, can_slice, group_size, num_outputs, quantum, stack_outputs
from degarble.profile.layer import rows
from degarble.profile.sample import UNREADABLE, spread
from degarble.registry import Level

MAX_VALUES = 1 << 17
MIN_ROWS = 16
KINDS = ("linear", "router", "embedding", "head")
SAME_COSINE = 0.9
SCALED_OUTPUTS = ("up_proj", "v_proj", "w3")
"""Linears whose outputs AWQ and SmoothQuant divide by what they multiply the inputs of the next linear with."""
SCALED_INPUTS = ("down_proj", "o_proj", "w2")
"""Those next linears: the larger the factors differ, the less their columns resemble the reference's as they are."""
PRE_SCALE = "pre_quant_scale"
COMPENSATED = "gptq"
"""The one format whose name says how its codes were chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One weight and its counterpart."""

    module: StoredModule
    reference: StoredModule
    cosine: float
    """Of all sampled values, after folds were put back, by columns where outputs before are scaled; 0 for zeros."""
    gain: float
    """Least-squares factor of the reference's values; the median row's or column's where a fold may have scaled those."""
    steps: float | None
    """Median |difference| in steps of an integer format; None for others."""
    is_zero: bool
    column_logs: Array
    """[in] log of the least-squares factor of each input, after the norm's fold was put back; NaN if not positive."""
    row_logs: Array
    """[sampled outputs] the same of each output; zeros for modules whose outputs nobody scales."""
    outputs: Runs
    rounded: float | None = None
    """GPTQ: share of codes that plain rounding of the reference would give; None for others."""


class ReferenceWeights(msgspec.Struct, frozen=True, kw_only=True):
    """All comparisons, and the norms and their folds."""

    comparisons: Mapping[str, Comparison]
    """Module -> comparison."""
    folds: Sequence[Fold]


@provides("reference_weights")
def reference_weights(
    modules: Modules,
    reference: Evidence,
    settings: Settings,
    is_gguf: bool,
    architecture: Architecture | None = None,
    model_config: ModelConfig | None = None,
) -> ReferenceWeights:
    """Compare what both have in the same shape."""
    if settings.level is Level.HEADER:
        raise EvidenceMissing("reads tensor contents, and --level header was asked for")
    others: Modules | None = reference.find("modules")
    if others is None:
        raise EvidenceMissing("the reference has no weights that could be read")
    folds = folds_of(modules, others, architecture, reference.find("architecture"))
    by_norm = {fold.norm.canonical: fold for fold in folds}
    is_reordered = bool(reference.find("is_gguf")) is not is_gguf
    heads = _heads(model_config)
    found: dict[str, Comparison] = {}
    for module in modules.values():
        other = others.by_canonical.get(module.canonical or "")
        if module.canonical is None or other is None or not _is_comparable(module, other):
            continue
        fold = by_norm.get(norm_before(module, modules))
        compared = _compare(module, other, fold, heads if is_reordered else (0, 0))
        if compared is not None:
            found[module.name] = compared
    if not found:
        raise EvidenceMissing("the reference has no weight of the same name and shape")
    return ReferenceWeights(comparisons=found, folds=folds)


def _heads(config: ModelConfig | None) -> tuple[int, int]:
    text = config.text if config is not None else {}
    heads = text.get("num_attention_heads")
    kv_heads = text.get("num_key_value_heads", heads)
    return (heads, kv_heads) if type(heads) is int and type(kv_heads) is int and min(heads, kv_heads) > 0 else (0, 0)


def _is_comparable(module: StoredModule, other: StoredModule) -> bool:
    if module.kind not in KINDS or not can_slice(module) or not can_slice(other):
        return False
    if "scale" in module.form.missing or "scale" in other.form.missing:
        return False
    mine, theirs = shape_of(module), shape_of(other)
    return mine[1:] == theirs[1:] and (mine[0] == theirs[0] or module.kind in ("embedding", "head")) and min(mine) > 0


def sampled(module: StoredModule, other: StoredModule) -> Runs:
    """Outputs that both can be cut into."""
    total, columns = min(num_outputs(module), num_outputs(other)), shape_of(module)[-1]
    step = lcm(quantum(module), quantum(other), 4)
    wanted = max(MIN_ROWS, MAX_VALUES // columns)
    return ((0, total),) if wanted >= total or total < 2 * step else spread(total, wanted, step)


def _compare(module: StoredModule, other: StoredModule, fold: Fold | None, heads: tuple[int, int]) -> Comparison | None:
    leaf = (module.canonical or "").rpartition(".")[2]
    count = {"q_proj": heads[0], "k_proj": heads[1]}.get(leaf, 0)
    try:
        runs = ((0, num_outputs(module)),) if count else sampled(module, other)
        mine, theirs = rows(module, runs), rows(other, runs)
        steps = _steps(module, runs)
    except UNREADABLE:
        return None
    if count and num_outputs(module) % count == 0:
        mine, theirs = _in_one_order(mine, theirs, num_outputs(module) // count)
        steps = None
    compared = _judged(module, other, mine, theirs, fold, steps, runs)
    return replace(compared, rounded=_rounded(module, theirs, steps, runs))


def _rounded(module: StoredModule, theirs: Array, steps: Array | None, runs: Runs) -> float | None:
    """Whether error compensation changed any code: without it, the tool fell back to rounding."""
    if module.form.format != COMPENSATED or steps is None or not bool((steps > 0).all()):
        return None
    some = stack_outputs([module], runs)
    zeros, index, codes = some.zeros(), module.group_index(), some.codes()
    if zeros is None or index is None or codes.shape != theirs.shape:
        return None
    wanted = np.clip(np.round(theirs / steps) + zeros[:, index], 0, (1 << bits_of(module)) - 1)
    return float((codes == wanted).mean())


def _in_one_order(mine: Array, theirs: Array, head_dim: int) -> tuple[Array, Array]:
    """GGUF of Llama models has rotary rows in pairs: of three orders, the one in which both agree best."""
    choices = ((mine, theirs), (rotary_rows(mine, head_dim), theirs), (mine, rotary_rows(theirs, head_dim)))
    return max(choices, key=lambda pair: cosine(*pair))


def _judged(
    module: StoredModule,
    other: StoredModule,
    mine: Array,
    theirs: Array,
    fold: Fold | None,
    steps: Array | None,
    runs: Runs,
) -> Comparison:
    numbers = _inputs_of_rows(module, fold, runs)
    inputs = _input_factors(module, other, mine.shape[1], fold, numbers)
    restored = mine * inputs
    gain = _gain(restored, theirs)
    row_logs = np.zeros(len(mine))
    if (module.canonical or "").rpartition(".")[2] in SCALED_OUTPUTS:
        row_logs = _log_factors(restored, theirs, 1)
        gain = _median_factor(row_logs, gain)
        inverse = np.exp(-np.nan_to_num(row_logs))[:, None].astype(np.float32)
        restored, inputs = restored * inverse, inputs * inverse
    column_logs = _log_factors(restored, theirs, 0)
    choices = [restored, mine]
    if (module.canonical or "").rpartition(".")[2] in SCALED_INPUTS:
        choices.append(restored * np.exp(-np.nan_to_num(column_logs)).astype(np.float32))
        gain = _median_factor(column_logs, gain)
    if numbers is not None and fold is not None:
        column_logs = _by_input(_log_factors(restored, theirs, 1), numbers, len(fold.logs))
    return Comparison(
        module=module,
        reference=other,
        cosine=max(cosine(one, theirs) for one in choices),
        gain=gain,
        steps=None if steps is None else _median_steps([(restored, steps * inputs), (mine, steps)], theirs),
        is_zero=not mine.any() and bool(theirs.any()),
        column_logs=column_logs,
        row_logs=row_logs,
        outputs=runs,
    )


def _inputs_of_rows(module: StoredModule, fold: Fold | None, runs: Runs) -> Array | None:
    """The input that each sampled row belongs to, of experts that lie [experts, in, out] in one parameter; else None."""
    shape = shape_of(module)
    if fold is None or len(shape) < 2 or len(fold.logs) == shape[-1] or len(fold.logs) != shape[-2]:
        return None
    return np.asarray(np.concatenate([np.arange(start, stop) for start, stop in runs]) % shape[-2])


def _by_input(logs: Array, numbers: Array, inputs: int) -> Array:
    """[in] the mean over the experts of each input's row; NaN for inputs that no sampled row belongs to."""
    is_known = ~np.isnan(logs)
    counts = np.bincount(numbers[is_known], minlength=inputs)
    sums = np.bincount(numbers[is_known], weights=logs[is_known], minlength=inputs)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _input_factors(
    module: StoredModule, other: StoredModule, columns: int, fold: Fold | None, numbers: Array | None
) -> Array:
    """What each input is multiplied with before it meets the weight, against the reference."""
    factors = np.ones(columns, np.float32)
    if fold is not None and numbers is not None:
        factors = factors * np.exp(fold.logs[numbers]).astype(np.float32)[:, None]
    elif fold is not None and len(fold.logs) == columns:
        factors = np.exp(fold.logs).astype(np.float32)
    if module.part(PRE_SCALE) is not None:
        factors = factors * module.array(PRE_SCALE).astype(np.float32).reshape(-1)
    if other.part(PRE_SCALE) is not None:
        factors = factors / other.array(PRE_SCALE).astype(np.float32).reshape(-1)
    return np.asarray(factors)


def _median_steps(pairs: Sequence[tuple[Array, Array]], theirs: Array) -> float | None:
    """Of (weight, size of its steps), the smaller: a fold that this weight has no part in is WGT227's."""
    found = [float(np.median(np.abs(mine - theirs) / sizes)) for mine, sizes in pairs if bool((sizes > 0).all())]
    return min(found, default=None)


def _gain(mine: Array, theirs: Array) -> float:
    energy = float(np.vdot(theirs, theirs))
    return float(np.vdot(mine, theirs)) / energy if energy > 0 else 1.0


def _median_factor(logs: Array, otherwise: float) -> float:
    """A fold of uneven factors has a least-squares factor above 1 on both of its sides."""
    known = logs[~np.isnan(logs)]
    return math.exp(float(np.median(known))) if 2 * known.size >= logs.size else otherwise


def cosine(one: Array, other: Array) -> float:
    """Of all values; 0 if either is zero, 1 if both are."""
    if not one.any() and not other.any():
        return 1.0
    norm = math.sqrt(float(np.vdot(one, one)) * float(np.vdot(other, other)))
    return float(np.vdot(one, other)) / norm if norm > 0 and math.isfinite(norm) else 0.0


def _log_factors(mine: Array, theirs: Array, axis: int) -> Array:
    energy = np.einsum("nd,nd->d" if axis == 0 else "nd,nd->n", theirs, theirs)
    shared = np.einsum("nd,nd->d" if axis == 0 else "nd,nd->n", mine, theirs)
    is_known = (energy > 0) & (shared > 0)
    return np.where(is_known, np.log(np.where(is_known, shared, 1) / np.where(is_known, energy, 1)), np.nan)


def _steps(module: StoredModule, runs: Runs) -> Array | None:
    """[sampled outputs, in] size of one step; None for formats whose steps grow with the value."""
    scheme = module.form.scheme
    if scheme is None or scheme.type != "int" or module.form.format == "gguf":
        return None
    step = quantum(module)
    wide = [(start // step * step, -(-stop // step) * step) for start, stop in runs]
    if wide != list(runs):
        return None
    scales = np.abs(stack_outputs([module], runs).scales())
    columns = shape_of(module)[-1]
    index = module.group_index() if scales.shape[1] > 1 else np.zeros(columns, np.int64)
    if index is None:
        index = np.arange(columns) // group_size(module)
    return np.asarray(scales[:, index]) if int(index.max(initial=0)) < scales.shape[1] else None


def owner(compared: Comparison, candidates: Sequence[StoredModule]) -> Iterator[StoredModule]:
    """Modules of the reference whose weights the module holds instead of its own."""
    runs = compared.outputs[:4]
    mine = rows(compared.module, runs)
    for candidate in candidates:
        if candidate.form.shape != compared.module.form.shape or not can_slice(candidate):
            continue
        try:
            theirs = rows(candidate, runs)
        except UNREADABLE:
            continue
        if abs(cosine(mine, theirs)) > SAME_COSINE:
            yield candidate
