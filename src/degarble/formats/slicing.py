"""Some outputs or inputs of modules, as a module again: what a sample costs is then what it reads.

    stack_outputs([up_0, up_1, …], runs)     rows of many modules with equal headers, one below the other
    stack_inputs(down, runs)                 columns of one module, side by side

The result is a StoredModule over arrays in memory, so every format's own `codes`, `scales`, `zeros` and `dequantize`
read it. All a format says is where outputs and inputs lie in each stored part, its `axes`:

    role -> ((axis of outputs, how many share an index), (axis of inputs, how many share an index))

    an axis counts from the right, since experts may be stacked in front
    a number is a count of codes; "words": as many as 32-bit words hold; "ggml": a GGUF block's; "group", "block": one
    for each of the scheme's

A part of one number, or one for each expert, is repeated for every output. Roles without axes (a group index, a shape)
are those of the first module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, lcm

import msgspec
import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.formats.agreement import bits_of, shape_of
from degarble.formats.gguf_types import GGML_TYPE_BY_NAME
from degarble.formats.in_memory import ArrayReader
from degarble.formats.interface import PAYLOAD, Axis, StoredModule
from degarble.formats.packing import WORD_BITS

Runs = Sequence[tuple[int, int]]
"""Half-open intervals of outputs (leading axes flattened) or inputs."""

ALL: Runs = ()

GROUP_INDEX = "g_idx"
"""The role of a group index: one number an input."""


class _Lane(msgspec.Struct, frozen=True):
    """One direction of a stored part: `per` indices along `axis` hold `codes` outputs or inputs; 0: a block of them."""

    axis: int
    codes: int
    per: int

    def cut(self, runs: Runs, name: str) -> list[tuple[int, int]]:
        """Runs of codes as runs of indices."""
        if any(start % self.codes or stop % self.codes for start, stop in runs):
            raise ValueError(f"{name}: {list(runs)[:3]} cut through {self.codes} codes that are stored together")
        return [(start // self.codes * self.per, stop // self.codes * self.per) for start, stop in runs]


class _Grid(msgspec.Struct, frozen=True):
    """A stored part as [outer, inner, bytes]."""

    array: Array
    outputs: _Lane
    inputs: _Lane | None
    tail: tuple[int, ...]
    """Axes of the stored shape behind the outer one."""
    scaled: int
    """Which of them shrinks with the inner axis; -1: none."""

    def shape(self, cut: Array) -> tuple[int, ...]:
        """The stored shape after outer or inner indices were cut."""
        tail = list(self.tail)
        if self.scaled >= 0:
            tail[self.scaled] = tail[self.scaled] * cut.shape[1] // self.array.shape[1]
        return (cut.shape[0], *tail)


def can_slice(module: StoredModule) -> bool:
    """Whether the format says where outputs lie, and the module's shape is known."""
    return PAYLOAD in module.format.axes and module.form.shape is not None and len(module.form.shape) > 1


def num_outputs(module: StoredModule) -> int:
    """Outputs with leading axes (experts) flattened."""
    return num_elements(shape_of(module)[:-1])


def quantum(module: StoredModule) -> int:
    """Outputs that must be cut together."""
    axes = (axes for role, axes in module.format.axes.items() if role in module.form.roles)
    return lcm(*(_codes(module, output[1]) or 1 for output, _ in axes))


def group_size(module: StoredModule) -> int:
    """Inputs that share a scale; all of them for one scale a row or a tensor."""
    scheme = module.form.scheme
    size = (scheme.block_shape[1] if scheme.block_shape else scheme.group_size) if scheme is not None else None
    return size or shape_of(module)[-1]


def stack_outputs(
    modules: Sequence[StoredModule], runs: Runs = ALL, roles: Sequence[str] | None = None
) -> StoredModule:
    """The outputs `runs` of every module: [modules * outputs, in]. The modules must have equal headers.

    `roles`: leave out the other parts' bytes. Raises ValueError where a run cuts through a word, or a part does not fit
    the module's shape.
    """
    first = modules[0]
    whole = runs or ((0, num_outputs(first)),)
    if (made := first.format.cut(modules, whole)) is not None:
        return made
    count = sum(stop - start for start, stop in whole)
    arrays: dict[str, Array] = {}
    parts = dict(first.parts)
    for role, suffix in first.form.roles.items():
        info = first.parts[suffix]
        if role not in first.format.axes:
            arrays[info.name] = first.reader.raw(info)
        elif roles is None or role in roles:
            array, shape = _stacked(modules, role, whole)
            arrays[info.name] = array
            parts[suffix] = TensorInfo(info.name, _dtype(info), shape, info.file, 0, array.nbytes)
        else:
            parts[suffix] = _without_bytes(info, first, len(modules) * count)
    scheme = first.form.scheme
    if scheme is not None and scheme.block_shape is not None:
        scheme = replace(scheme, block_shape=(1, scheme.block_shape[1]))
    form = replace(first.form, shape=(len(modules) * count, shape_of(first)[-1]), scheme=scheme)
    return msgspec.structs.replace(first, parts=parts, form=form, reader=ArrayReader(arrays))


def stack_inputs(module: StoredModule, runs: Runs, roles: Sequence[str] | None = None) -> StoredModule:
    """The inputs `runs`, all of one length, of a matrix: [out, inputs].

    A run lies inside one group, or consists of whole groups; with a group index of its own, a module takes any run that
    cuts no word. `roles`: leave out the other parts' bytes. Raises ValueError otherwise.
    """
    length, size = runs[0][1] - runs[0][0], group_size(module)
    has_index = module.part(GROUP_INDEX) is not None
    if len(shape_of(module)) != 2 or (not has_index and any(_tears(run, size, shape_of(module)[-1]) for run in runs)):
        raise ValueError(f"{module.name}: runs of {length} inputs cannot be cut from groups of {size}")
    arrays: dict[str, Array] = {}
    parts = dict(module.parts)
    for role, suffix in module.form.roles.items():
        info = module.parts[suffix]
        if roles is not None and role not in roles and role in module.format.axes:
            continue
        cut, shape = module.reader.raw(info), info.shape
        grid = _grid(module, role) if role in module.format.axes else None
        if role == PAYLOAD and (grid is None or grid.inputs is None):
            raise ValueError(f"{module.name}: the inputs of {module.form.format} cannot be cut")
        if role == GROUP_INDEX:
            cut = _take(cut.reshape(shape[0], 1, -1), 0, runs)
            shape = cut.shape[:1]
        elif grid is not None and grid.inputs is not None and (role == PAYLOAD or not has_index):
            cut = _take(grid.array, grid.inputs.axis, _input_indices(grid.inputs, runs, size, info.name))
            shape = grid.shape(cut)
        arrays[info.name] = cut
        parts[suffix] = TensorInfo(info.name, _dtype(info), shape, info.file, 0, cut.nbytes)
    scheme = module.form.scheme
    if scheme is not None and not has_index:
        small = min(size, length) if size < shape_of(module)[-1] else length * len(runs)
        block = (scheme.block_shape[0], small) if scheme.block_shape else None
        scheme = replace(scheme, group_size=small if scheme.group_size else None, block_shape=block)
    form = replace(module.form, shape=(shape_of(module)[0], length * len(runs)), scheme=scheme)
    return msgspec.structs.replace(module, parts=parts, form=form, reader=ArrayReader(arrays))


def _tears(run: tuple[int, int], size: int, inputs: int) -> bool:
    """Whether a run is neither part of one group nor whole groups."""
    start, stop = run
    is_part = size % (stop - start) == 0 and start // size == (stop - 1) // size
    return size != inputs and not is_part and bool(start % size or stop % size)


def _input_indices(lane: _Lane, runs: Runs, size: int, name: str) -> list[tuple[int, int]]:
    """Indices of runs; for scales, the group in which a run lies or the groups it consists of."""
    if lane.codes:
        return lane.cut(runs, name)
    return [(start // size, max(start // size + 1, stop // size)) for start, stop in runs]


def _without_bytes(info: TensorInfo, module: StoredModule, outputs: int) -> TensorInfo:
    """A header entry that stands for the payload where only its shape is asked for."""
    if len(info.shape) < 2 or info.shape[-1] != shape_of(module)[-1]:
        return info
    return TensorInfo(info.name, info.dtype, (outputs, info.shape[-1]), info.file, 0, 0)


def _dtype(info: TensorInfo) -> str:
    """Plain GGUF numbers under their safetensors name, which arrays have."""
    plain = info.dtype.removeprefix("GGUF:")
    return plain if plain in DTYPES else info.dtype


def _codes(module: StoredModule, unit: int | str) -> int:
    """Codes that share an index; 0 for the scheme's groups and blocks."""
    if unit == "words":
        return WORD_BITS // gcd(WORD_BITS, bits_of(module))
    if unit == "ggml":
        return GGML_TYPE_BY_NAME[module.parts[module.form.roles[PAYLOAD]].dtype.removeprefix("GGUF:")].block_size
    return unit if isinstance(unit, int) else 0


def _grid(module: StoredModule, role: str) -> _Grid | None:
    """The part by outputs and inputs; None where it has one number for all outputs, or one for each expert's."""
    info = module.parts[module.form.roles[role]]
    (axis, unit), along = module.format.axes[role]
    shape, total = info.shape, num_outputs(module)
    codes = _codes(module, unit)
    at = len(shape) + axis
    if num_elements(shape) == 1:
        return None
    if at < 0:
        at, along = 0, None
    is_column = along is not None and along[0] < axis
    have = shape[at] if is_column else num_elements(shape[: at + 1])
    atoms = -(-total // codes) if codes else have
    if have % atoms or have < atoms:
        if total % num_elements(shape) == 0:
            return None
        raise ValueError(f"{info.name}: {list(shape)} does not fit {total} outputs")
    raw, per = module.reader.raw(info), have // atoms
    if is_column:
        grid = raw.reshape(num_elements(shape[:at]), have, -1)
        inputs = _input_lane(module, along, 0, grid.shape[0])
        return _Grid(grid, _Lane(1, codes, per), inputs, (have,), 0)
    tail = shape[at + 1 :]
    inner = _inner(module, along, raw.size // have)
    lane = _input_lane(module, along, 1, inner) if inner > 1 or along is not None else None
    scaled = len(tail) + along[0] if along is not None and inner > 1 else -1
    return _Grid(raw.reshape(have, inner, -1), _Lane(0, codes, per), lane if inner > 1 else None, tail, scaled)


def _inner(module: StoredModule, along: Axis | None, row_bytes: int) -> int:
    """Indices into which a row's bytes are cut along the inputs; 1 where they cannot be cut."""
    if along is None:
        return 1
    inputs = shape_of(module)[-1]
    codes = _codes(module, along[1]) or group_size(module)
    indices = -(-inputs // codes)
    return indices if row_bytes % indices == 0 else 1


def _input_lane(module: StoredModule, along: Axis | None, axis: int, have: int) -> _Lane | None:
    if along is None:
        return None
    codes = _codes(module, along[1])
    atoms = -(-shape_of(module)[-1] // codes) if codes else have
    return _Lane(axis, codes, have // atoms) if have % atoms == 0 and have >= atoms else None


def _take(array: Array, axis: int, indices: Sequence[tuple[int, int]]) -> Array:
    return np.concatenate(
        [array[start:stop] if axis == 0 else array[:, start:stop] for start, stop in indices], axis=axis
    )


def _stacked(modules: Sequence[StoredModule], role: str, runs: Runs) -> tuple[Array, tuple[int, ...]]:
    """The bytes of one part for the chosen outputs of all modules, and its shape."""
    first = _grid(modules[0], role)
    if first is None:
        array = np.concatenate([_repeated(module, role, runs) for module in modules])
        return array, (array.shape[0], 1)
    suffix, axis = modules[0].form.roles[role], first.outputs.axis
    whole = [module.reader.raw(module.parts[suffix]).reshape(first.array.shape) for module in modules]
    if not first.outputs.codes:
        rows = _block_rows(modules[0], runs)
        found = [array[rows] for array in whole]
    else:
        indices = first.outputs.cut(runs, modules[0].name)
        found = [array[start:stop] if axis == 0 else array[:, start:stop] for array in whole for start, stop in indices]
    array = np.concatenate(found, axis=axis) if len(found) > 1 else np.ascontiguousarray(found[0])
    return array, first.shape(array)


def _block_rows(module: StoredModule, runs: Runs) -> Array:
    """The row of block scales of each chosen output."""
    scheme = module.form.scheme
    if scheme is None or scheme.block_shape is None:
        raise ValueError(f"{module.name}: its blocks have no known size")
    height, rows = scheme.block_shape[0], shape_of(module)[-2]
    outputs = np.concatenate([np.arange(start, stop) for start, stop in runs])
    return np.asarray(outputs // rows * -(-rows // height) + outputs % rows // height)


def _repeated(module: StoredModule, role: str, runs: Runs) -> Array:
    """One number of a module, or one of each expert, for every chosen output: [outputs, 1, bytes]."""
    info = module.parts[module.form.roles[role]]
    numbers = module.reader.raw(info).reshape(num_elements(info.shape), 1, -1)
    outputs = np.concatenate([np.arange(start, stop) for start, stop in runs])
    return np.asarray(numbers[outputs // (num_outputs(module) // len(numbers))])
