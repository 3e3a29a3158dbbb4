"""Module profiles: a few outputs of every module, and all scales, a batch of modules with equal headers at a time.

A file may hold 16,000 small modules; one by one, calls would cost more than bytes. stack_outputs makes one module of a
batch, the format's own code unpacks it once, and the statistics run over [modules, outputs, groups, group].

How much is read: 1/64 of a module's values, between 16 Ki and 64 Ki of them, in runs spread evenly over its outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import MalformedFile
from degarble.executor import Executor, Progress, Unit
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import Runs, can_slice, num_outputs, quantum, stack_outputs
from degarble.profile.code_groups import code_groups
from degarble.profile.codes import code_stats
from degarble.profile.dead_rows import dead_rows
from degarble.profile.module_profile import CodeStats, ModuleProfile, ScaleStats, ValueStats
from degarble.profile.reach import reach
from degarble.profile.scales import SUSPICIOUS_IN_BLOCKS, SUSPICIOUS_OCTAVES, scale_stats
from degarble.profile.tensor_profile import TensorProfile
from degarble.profile.values import value_stats

MIN_VALUES, MAX_VALUES, SHARE = 1 << 14, 1 << 16, 64
MIN_OUTPUTS = 8
MIN_RUN = 4
"""Outputs read together at least: every run costs a few calls."""
BATCH_VALUES = 1 << 20
BATCH_SCALES = 1 << 20
BLOCKS_ARE_SLOW = 4
"""GGUF blocks take so much longer to dequantise than packed integers; so much less of them is sampled."""
UNREADABLE = (ValueError, KeyError, IndexError, OSError, MalformedFile, NotImplementedError)
"""What format files raise for parts that do not fit together; header rules report those."""


class SampleResult(msgspec.Struct, frozen=True):
    """What one batch gave."""

    profiles: dict[str, ModuleProfile]
    unread: dict[str, str]
    """Module -> why its values could not be read."""

    def merge(self, other: SampleResult) -> SampleResult:
        """Results of two batches."""
        self.profiles.update(other.profiles)
        self.unread.update(other.unread)
        return self


def profile_modules(
    classes: Iterable[tuple[StoredModule, Sequence[StoredModule]]],
    tensors: Mapping[str, TensorProfile],
    executor: Executor,
    *,
    progress: Progress | None = None,
) -> SampleResult:
    """Profile every module that has a weight matrix. `classes`: modules with equal headers and one example of each."""
    units = [
        Unit(len(batch) * _values_in(batch[0], runs), Batch(batch, runs, tensors))
        for example, members in classes
        if is_readable(example)
        for runs in [sampled_outputs(example)]
        for batch in _batches(members, runs)
    ]
    result = SampleResult({}, {})
    for part in executor.run(units, progress):
        result.merge(part)
    return result


def is_readable(module: StoredModule) -> bool:
    """Whether a module has a weight matrix whose outputs can be cut."""
    return can_slice(module) and min(shape_of(module)) > 0 and "scale" not in module.form.missing


def sampled_outputs(module: StoredModule) -> Runs:
    """Half-open intervals of outputs."""
    total, inputs = num_outputs(module), shape_of(module)[-1]
    step = -(-MIN_RUN // quantum(module)) * quantum(module)
    share = SHARE * BLOCKS_ARE_SLOW if module.form.format == "gguf" else SHARE
    wanted = max(MIN_VALUES, min(MAX_VALUES, total * inputs // share)) // inputs
    if total <= step * 2 or max(wanted, MIN_OUTPUTS) >= total:
        return ((0, total),)
    return spread(total, max(wanted, MIN_OUTPUTS), step)


def spread(total: int, wanted: int, step: int) -> Runs:
    """About `wanted` of `total`, in runs of `step`, evenly: | xx······xx······xx······ |"""
    count = min(max(1, -(-wanted // step)), total // step)
    starts = sorted({int(at) for at in np.linspace(0, total // step - 1, count).round()})
    return tuple((at * step, (at + 1) * step) for at in starts)


def _values_in(module: StoredModule, runs: Runs) -> int:
    return sum(stop - start for start, stop in runs) * shape_of(module)[-1]


def _batches(members: Sequence[StoredModule], runs: Runs) -> Iterator[Sequence[StoredModule]]:
    example = members[0]
    scale = example.part("scale")
    most = BATCH_VALUES // max(1, _values_in(example, runs))
    most = max(1, min(most, BATCH_SCALES // max(1, scale.nbytes if scale is not None else 1)))
    for start in range(0, len(members), most):
        yield members[start : start + most]


class Batch:
    """The work of one unit."""

    def __init__(self, modules: Sequence[StoredModule], runs: Runs, tensors: Mapping[str, TensorProfile]) -> None:
        self._modules, self._runs, self._tensors = modules, runs, tensors

    def __call__(self) -> SampleResult:
        """Profiles of all modules; where one is broken, each is read alone."""
        try:
            return self._profile(self._modules)
        except UNREADABLE as error:
            if len(self._modules) == 1:
                return SampleResult({}, {self._modules[0].name: str(error)})
        result = SampleResult({}, {})
        for module in self._modules:  # one of them is broken: the others are not
            result.merge(Batch([module], self._runs, self._tensors)())
        return result

    def _profile(self, modules: Sequence[StoredModule]) -> SampleResult:
        stacked = stack_outputs(modules, self._runs)
        values, codes = judge_values(modules, stacked)
        scales = judge_scales(modules)
        reached = reach(modules, stacked)
        profiles = {}
        for index, module in enumerate(modules):
            dead, num_dead = dead_rows(module, self._tensors)
            profiles[module.name] = ModuleProfile(
                name=module.name,
                outputs=tuple(self._runs),
                num_outputs=num_outputs(module),
                num_values=_values_in(module, self._runs),
                values=values[index],
                codes=codes[index],
                scales=scales[index],
                reach=reached[index],
                dead_rows=dead,
                num_dead_rows=num_dead,
            )
        return SampleResult(profiles, {})


def judge_values(
    modules: Sequence[StoredModule], stacked: StoredModule
) -> tuple[Sequence[ValueStats], Sequence[CodeStats | None]]:
    """Statistics of values and codes of the sampled outputs."""
    groups = code_groups(modules, stacked)
    if groups is None:
        values = by_module(stacked.dequantize(), len(modules))
        return value_stats(values), [None] * len(modules)
    stats = code_stats(groups.codes, groups.zeros, groups.num_bits, groups.words)
    return value_stats(groups.values()), stats


def by_module(values: Array, modules: int) -> Array:
    """[modules * outputs, in] -> [modules, outputs, in]"""
    return values.reshape(modules, -1, values.shape[-1])


def judge_scales(modules: Sequence[StoredModule]) -> Sequence[ScaleStats | None]:
    """Statistics of all scales; None for plain weights and formats that do not tell theirs."""
    first = modules[0]
    if first.part("scale") is None and first.form.format != "gguf":
        return [None] * len(modules)
    try:
        scales = [module.scales() for module in modules]
    except ValueError:  # GGUF types without a scale of a block's own
        return [None] * len(modules)
    has_blocks = first.form.scheme is not None and first.form.scheme.block_shape is not None
    suspicious = SUSPICIOUS_IN_BLOCKS if has_blocks else SUSPICIOUS_OCTAVES
    matrices = [one.reshape(-1, one.shape[-1]) for one in scales]
    stacked = np.stack(matrices) if len(matrices) > 1 else matrices[0][None]
    return scale_stats(stacked, suspicious, with_tiles=_may_be_tiled(first))


def _may_be_tiled(module: StoredModule) -> bool:
    """Formats whose kernels want scales in tiles: groups of floats."""
    scheme = module.form.scheme
    is_grouped = scheme is not None and scheme.type == "float" and scheme.group_size is not None
    return is_grouped and module.form.format != "gguf"
