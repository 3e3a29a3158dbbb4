"""Outputs of nothing but zeros, among all outputs: cheap signs first, then proof on the few that show them.

Where an output is a stored row whose zero is one pattern, the pass over the bytes has already seen it; where outputs
are packed side by side, or every group has a zero point of its own, eight inputs of each are looked at. Only those
candidates are dequantised.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from degarble.formats.agreement import shape_of
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.formats.slicing import GROUP_INDEX, num_outputs, quantum, stack_inputs, stack_outputs
from degarble.profile.tensor_profile import TensorProfile

MAX_PROVEN = 1024
"""Candidates beyond this are judged by the share of these that are dead."""
MAX_LISTED = 4096
FEW_INPUTS = 8


def dead_rows(module: StoredModule, tensors: Mapping[str, TensorProfile]) -> tuple[tuple[int, ...], int]:
    """The first dead outputs, and how many there are."""
    candidates = _candidates(module, tensors)
    if not module.form.is_quantized or not candidates:
        return tuple(candidates[:MAX_LISTED]), len(candidates)
    step, total = quantum(module), num_outputs(module)
    some = candidates[:MAX_PROVEN]
    blocks = sorted({row // step for row in some})
    runs = [(block * step, min((block + 1) * step, total)) for block in blocks]
    values = stack_outputs([module], runs).dequantize()
    outputs = np.concatenate([np.arange(start, stop) for start, stop in runs])
    proven = set(outputs[~np.asarray(values.any(axis=-1))].tolist())
    dead = [row for row in some if row in proven]
    rest = candidates[MAX_PROVEN:]
    listed = dead + rest if len(dead) == len(some) else dead
    return tuple(listed[:MAX_LISTED]), len(dead) + len(rest) * len(dead) // len(some)


def _candidates(module: StoredModule, tensors: Mapping[str, TensorProfile]) -> list[int]:
    payload = module.payload
    if payload is None:
        return []
    (axis, codes), along = module.format.axes[PAYLOAD]
    is_column = along is not None and along[0] < axis
    if module.form.is_quantized and (is_column or codes != 1 or _has_own_zeros(module)):
        return _by_few_inputs(module)
    profile = tensors.get(payload.name)
    if profile is None:
        return []
    stored = sorted({*profile.zero_rows.first, *profile.constant_rows.first})
    outputs, rows = num_outputs(module), max(1, profile.num_rows)
    return _more_rows_than_outputs(stored, rows // outputs) if outputs and rows % outputs == 0 else []


def _more_rows_than_outputs(stored: list[int], per_output: int) -> list[int]:
    """Outputs all of whose stored rows (blocks of an expert's row) repeat a pattern."""
    if per_output < 1:
        return []
    counts: dict[int, int] = {}
    for row in stored:
        counts[row // per_output] = counts.get(row // per_output, 0) + 1
    return [output for output, count in counts.items() if count == per_output]


def _has_own_zeros(module: StoredModule) -> bool:
    return any(module.part(role) is not None for role in ("zero_point", "offset"))


def _by_few_inputs(module: StoredModule) -> list[int]:
    """Outputs whose first codes are equal, as those of a dead one are; under a group index, whose values are zero."""
    few = min(FEW_INPUTS, shape_of(module)[-1])
    if len(shape_of(module)) != 2:
        return []
    if module.part(GROUP_INDEX) is not None:
        values = stack_inputs(module, [(0, few)]).dequantize()
        return [int(row) for row in np.flatnonzero(~values.any(axis=1))]
    codes = stack_inputs(module, [(0, few)], roles=(PAYLOAD,)).codes()
    return [int(row) for row in np.flatnonzero((codes == codes[:, :1]).all(axis=1))]
