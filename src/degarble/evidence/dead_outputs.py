"""Evidence about outputs that are zero for every input, where stored rows do not show them.

A row of plain, FP8 or FP4 weights, or of symmetric codes, is dead where its bytes repeat one pattern: the module
profiles have those. Elsewhere a dead row has the pattern of its zero points, of its block scales, or shares its bytes
with another row. There the first inputs of every output are decoded; only rows that are zero in them are read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import MalformedFile
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.agreement import shape_of
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.formats.slicing import can_slice, num_outputs, quantum, stack_inputs, stack_outputs
from degarble.profile.lines import MIN_ROW_BYTES
from degarble.profile.module_profile import ModuleProfile

FEW_INPUTS = 8
MAX_PROVEN = 1024
UNREADABLE = (ValueError, KeyError, IndexError, NotImplementedError, MalformedFile)


class DeadOutputs(msgspec.Struct, frozen=True):
    """Outputs of one module that decode to zeros only."""

    rows: tuple[int, ...]
    """The first ones."""
    count: int
    num_outputs: int


@provides("dead_outputs")
def dead_outputs(modules: Modules, module_profiles: Mapping[str, ModuleProfile]) -> Mapping[str, DeadOutputs]:
    """Linears and routers by name, those without a dead output too."""
    found: dict[str, DeadOutputs] = {}
    for example, members in modules.classes():
        if example.kind not in ("linear", "router") or example.payload is None:
            continue
        is_hidden = _is_hidden(example)
        for module in members:
            profile = module_profiles.get(module.name)
            if is_hidden:
                try:
                    found[module.name] = _search(module)
                    continue
                except UNREADABLE:
                    pass
            if profile is not None:
                found[module.name] = DeadOutputs(profile.dead_rows, profile.num_dead_rows, profile.num_outputs)
    return found


def _is_hidden(module: StoredModule) -> bool:
    """Whether a dead row does not repeat a pattern over stored bytes of its own."""
    payload, shape = module.payload, module.form.shape or ()
    if payload is None or module.form.missing or len(shape) != 2:
        return False
    if payload.nbytes < shape[0] * MIN_ROW_BYTES:
        return True
    if not module.form.is_quantized:
        return False
    outputs = module.format.axes.get(PAYLOAD, ((0, 0), None))[0]
    return (
        "codebook" in module.form.roles or module.form.format == "gguf" or outputs[1] != 1 or _has_zero_points(module)
    )


def _has_zero_points(module: StoredModule) -> bool:
    return any(role in module.form.roles for role in ("zero_point", "offset", "shift"))


def _search(module: StoredModule) -> DeadOutputs:
    outputs = num_outputs(module)
    candidates = np.flatnonzero(~_first_inputs(module).any(axis=1))
    some = candidates[:MAX_PROVEN].tolist()
    dead = (
        [row for row, values in zip(some, _whole_rows(module, some), strict=True) if not values.any()] if some else []
    )
    count = len(dead) + (len(candidates) - len(some)) * len(dead) // max(1, len(some))
    return DeadOutputs(tuple(dead), count, outputs)


def _first_inputs(module: StoredModule) -> Array:
    """[out, few] values, or codes less the code of zero."""
    inputs = shape_of(module)[-1]
    if "codebook" in module.form.roles:
        table = module.array("codebook").reshape(-1)
        packed = module.reader.raw(module.parts[module.form.roles[PAYLOAD]])
        few = packed.reshape(num_outputs(module), -1)[:, : FEW_INPUTS // 2]  # two codes a byte
        return np.concatenate([table[few >> 4], table[few & 15]], axis=1)
    width = 32 if module.form.format == "gguf" else FEW_INPUTS
    if module.form.format == "gguf" and inputs % 256 == 0:
        width = 256
    if inputs <= width:
        return module.dequantize()
    return stack_inputs(module, [(0, min(width, inputs))]).dequantize()


def _whole_rows(module: StoredModule, rows: Sequence[int]) -> Array:
    if "codebook" in module.form.roles or not can_slice(module):
        return module.dequantize().reshape(num_outputs(module), -1)[list(rows)]
    step, total = quantum(module), num_outputs(module)
    blocks = sorted({row // step for row in rows})
    runs = [(block * step, min((block + 1) * step, total)) for block in blocks]
    values = stack_outputs([module], runs).dequantize()
    at = {row: index for index, row in enumerate(row for start, stop in runs for row in range(start, stop))}
    return np.asarray(values[[at[row] for row in rows]])
