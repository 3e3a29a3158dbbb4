"""Module profiles over all values: `--exhaustive`.

Every module is cut into parts of about two million values, each part gives sums, and the sums of all parts give the
ModuleProfile that the module read at once would give: memory stays bounded by a few parts a thread, and threads share a
large matrix. Integer codes are summed as they are stored, without being dequantised (group_sums.py, value_sums.py);
floats, layouts without a stream of codes, and values that overflow are dequantised part by part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from degarble.checkpoint.interface import num_elements
from degarble.executor import Executor, Progress, Unit
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import group_size, num_outputs, quantum, stack_outputs
from degarble.profile.code_groups import READ_BLOCKS, code_groups, scales_by_group, zeros_by_group
from degarble.profile.code_stream import code_stream
from degarble.profile.code_sums import CodeSums, code_sums, ends_of, spill_of, stats_of_codes
from degarble.profile.dead_rows import dead_rows
from degarble.profile.group_sums import sums_of_codes
from degarble.profile.kernels import Kernels, kernels_for
from degarble.profile.module_profile import ModuleProfile, ScaleStats
from degarble.profile.reach import is_by_block, reach
from degarble.profile.sample import (
    UNREADABLE,
    SampleResult,
    is_readable,
    judge_scales,
    profile_modules,
    sampled_outputs,
)
from degarble.profile.scratch import Scratch
from degarble.profile.stream_sums import group_facts, stream_sums
from degarble.profile.tensor_profile import TensorProfile
from degarble.profile.value_sums import Place, ValueSums, stats_of_parts, sums_of_groups, sums_of_values

PART_VALUES = 1 << 21
"""Measured on packed 4-bit codes: half as many cost a tenth more in calls; memory is 30 MB a thread."""
COMPILED_TIMES = 4
"""Compiled loops need no room for what they add up; so much larger parts cost a quarter of the calls.
Where all values overflow and are dequantised after all, two threads peak at 490 MB with them, 270 without."""

Sums = tuple[ValueSums, CodeSums | None]


class _Part(msgspec.Struct, frozen=True):
    """What one run of a module's outputs gave."""

    module: StoredModule
    start: int
    outputs: int
    values: ValueSums | None
    codes: CodeSums | None = None
    reach: float | None = None
    scales: ScaleStats | None = None
    """Of the whole module, from its first part; so are `dead` and `num_dead`."""
    dead: tuple[int, ...] = ()
    num_dead: int = 0
    reason: str = ""
    """Why it could not be read."""


def profile_whole_modules(
    classes: Iterable[tuple[StoredModule, Sequence[StoredModule]]],
    tensors: Mapping[str, TensorProfile],
    executor: Executor,
    *,
    progress: Progress | None = None,
) -> SampleResult:
    """As `profile_modules`, over all outputs. Modules that a sample holds completely are left to it."""
    small: list[tuple[StoredModule, Sequence[StoredModule]]] = []
    large: list[StoredModule] = []
    for example, members in classes:
        if not is_readable(example) or sampled_outputs(example) == ((0, num_outputs(example)),):
            small.append((example, members))
        else:
            large += members
    result = profile_modules(small, tensors, executor, progress=progress)
    scratch, kernels = Scratch(), kernels_for(sum(num_elements(shape_of(one)) for one in large if has_codes(one)))
    units = [unit for module in large for unit in _units(module, tensors, scratch, kernels)]
    waiting: dict[str, list[_Part]] = {}
    for part in executor.run(units, progress):
        parts = waiting.setdefault(part.module.name, [])
        parts.append(part)
        if sum(one.outputs for one in parts) == num_outputs(part.module):
            result.merge(_together(waiting.pop(part.module.name)))
    return result


def _units(
    module: StoredModule, tensors: Mapping[str, TensorProfile], scratch: Scratch, kernels: Kernels | None
) -> Iterator[Unit[_Part]]:
    """Equal costs keep a module's parts together, so that few modules wait for their last part."""
    total, inputs, step = num_outputs(module), shape_of(module)[-1], quantum(module)
    values = PART_VALUES * (COMPILED_TIMES if kernels is not None and has_codes(module) else 1)
    rows = max(1, values // inputs // step) * step
    for start in range(0, total, rows):
        yield Unit(
            min(rows, total) * inputs, _Reader(module, start, min(start + rows, total), tensors, scratch, kernels)
        )


def _together(parts: list[_Part]) -> SampleResult:
    parts.sort(key=lambda part: part.start)
    module, first = parts[0].module, parts[0]
    reason = next((part.reason for part in parts if part.values is None), None)
    values = [part.values for part in parts if part.values is not None]
    if reason is not None:
        return SampleResult({}, {module.name: reason})
    codes = [part.codes for part in parts if part.codes is not None]
    reached = [(part.reach, part.outputs) for part in parts if part.reach is not None]
    inputs = shape_of(module)[-1]
    profile = ModuleProfile(
        name=module.name,
        outputs=((0, num_outputs(module)),),
        num_outputs=num_outputs(module),
        num_values=num_outputs(module) * inputs,
        values=stats_of_parts(values),
        codes=stats_of_codes(codes) if len(codes) == len(parts) else None,
        scales=first.scales,
        reach=sum(share * outputs for share, outputs in reached) / sum(outputs for _, outputs in reached)
        if reached
        else None,
        dead_rows=first.dead,
        num_dead_rows=first.num_dead,
    )
    return SampleResult({module.name: profile}, {})


class _Reader(msgspec.Struct, frozen=True):
    """The work of one unit: outputs [start, stop) of one module."""

    module: StoredModule
    start: int
    stop: int
    tensors: Mapping[str, TensorProfile]
    scratch: Scratch
    kernels: Kernels | None

    def __call__(self) -> _Part:
        try:
            return self._read()
        except UNREADABLE as error:
            return _Part(self.module, self.start, self.stop - self.start, None, reason=str(error))

    def _read(self) -> _Part:
        module = self.module
        stacked = stack_outputs([module], ((self.start, self.stop),))
        values, codes = sums_of(stacked, Place(self.start, num_outputs(module)), self.scratch, self.kernels)
        is_first = self.start == 0
        dead, num_dead = dead_rows(module, self.tensors) if is_first else ((), 0)
        return _Part(
            module=module,
            start=self.start,
            outputs=self.stop - self.start,
            values=values,
            codes=codes,
            reach=reach([module], stacked)[0] if is_first or not is_by_block(module) else None,
            scales=judge_scales([module])[0] if is_first else None,
            dead=dead,
            num_dead=num_dead,
        )


def sums_of(stacked: StoredModule, place: Place, scratch: Scratch, kernels: Kernels | None = None) -> Sums:
    """Sums of some outputs, over their codes as they are stored where that is possible."""
    if not has_codes(stacked):
        return sums_of_values(stacked.dequantize(), place), None
    return streamed_sums(stacked, place, scratch, kernels) or unpacked_sums(stacked, place)


def has_codes(module: StoredModule) -> bool:
    """Whether `code_groups` reads its scheme."""
    scheme = module.form.scheme
    if scheme is None or scheme.type != "int" or scheme.num_bits is None:
        return False
    return module.form.format != "gguf" or scheme.format in READ_BLOCKS


def streamed_sums(stacked: StoredModule, place: Place, scratch: Scratch, kernels: Kernels | None = None) -> Sums | None:
    """None where the codes are no stream, or values overflow."""
    inputs = shape_of(stacked)[-1]
    size = min(group_size(stacked), inputs)
    stream = code_stream(stacked) if inputs % size == 0 else None
    found = stream_sums(stream, size, scratch, kernels) if stream is not None else None
    if stream is None or found is None:
        return None
    groups = found.groups
    shape = (1, *groups.total.shape)
    zeros = zeros_by_group(stacked, shape, stream.num_bits if stream.is_signed else None)
    own = zeros[0] if zeros is not None else None
    around = own if own is not None else np.full((1, 1), 1 << (stream.num_bits - 1), np.float32)
    scales = scales_by_group(stacked, shape)[0]
    facts = group_facts(stream, groups, scales, around, kernels)
    if facts is None:
        return None
    ends, moments = facts
    spill = found.spill if found.spill is not None else spill_of(stacked)
    values = sums_of_groups(stream, moments, scales, around, size, place)
    return values, code_sums(stream.num_bits, groups, ends, own, spill, found.histogram)


def unpacked_sums(stacked: StoredModule, place: Place) -> Sums:
    """Through codes in bytes, and values."""
    groups = code_groups([stacked], stacked)
    if groups is None:
        return sums_of_values(stacked.dequantize(), place), None
    codes = groups.codes[0]  # [outputs, groups, size]
    zeros = groups.zeros[0] if groups.zeros is not None else None
    counts = np.bincount(codes.reshape(-1), minlength=1 << groups.num_bits)
    sums = sums_of_codes(codes, groups.num_bits)
    found = code_sums(groups.num_bits, sums, ends_of(sums), zeros, spill_of(stacked), counts)
    return sums_of_values(groups.values()[0], place), found
