"""Evidence about values: profiles of tensors, of modules, and of modules in pairs. See degarble.profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from degarble.checkpoint.interface import Source, TensorInfo
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.store import Coverage, Settings, provides
from degarble.executor import Executor, ThreadExecutor
from degarble.formats.detect import payload_suffixes
from degarble.profile import cache
from degarble.profile.blocks import EXHAUSTIVE_NEURONS, blocks, profile_blocks
from degarble.profile.layer import NUM_NEURONS, JointProfile
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.raw import SAMPLED_SHARE, profile_tensors
from degarble.profile.sample import profile_modules
from degarble.profile.tensor_profile import TensorProfile
from degarble.profile.whole_module import profile_whole_modules
from degarble.registry import Level

Value = TypeVar("Value")


@provides("executor")
def executor() -> Executor:
    """Where long work runs."""
    return ThreadExecutor()


@provides("profiles", level=Level.CONTENT)
def profiles(
    source: Source,
    tensors: Mapping[str, TensorInfo],
    groups: Mapping[str, Mapping[str, TensorInfo]],
    executor: Executor,
    settings: Settings,
    coverage: Coverage,
) -> Mapping[str, TensorProfile]:
    """Tensor -> what its bytes say. Tensors that could not be read are left out, and named in the coverage."""
    if settings.sample:
        coverage.add("--sample", f"of large tensors, one chunk of {SAMPLED_SHARE} was read")

    def read() -> tuple[dict[str, TensorProfile], Mapping[str, str]]:
        known = payload_suffixes()
        payloads = {info.name for parts in groups.values() for suffix, info in parts.items() if suffix in known}
        found = profile_tensors(
            source,
            tensors,
            executor,
            is_payload=payloads.__contains__,
            is_sampled=settings.sample,
            progress=settings.progress,
        )
        return found.profiles, found.unread

    shelf = _Shelf(source, tensors, settings, coverage)
    return shelf.kept(lambda: "tensors", dict[str, TensorProfile], read)


@provides("module_profiles", level=Level.CONTENT)
def module_profiles(
    source: Source,
    modules: Modules,
    profiles: Mapping[str, TensorProfile],
    tensors: Mapping[str, TensorInfo],
    executor: Executor,
    settings: Settings,
    coverage: Coverage,
) -> Mapping[str, ModuleProfile]:
    """Module -> what a sample of its values says, or all of them if exhaustive.

    Modules without a weight matrix that can be cut have none.
    """

    def manner() -> str:
        return f"modules {[(name, repr(m.form)) for name, m in modules.items()]}"

    def read() -> tuple[dict[str, ModuleProfile], Mapping[str, str]]:
        profiled = profile_whole_modules if settings.exhaustive else profile_modules
        found = profiled(modules.classes(), profiles, executor, progress=settings.progress)
        return found.profiles, found.unread

    return _Shelf(source, tensors, settings, coverage).kept(manner, dict[str, ModuleProfile], read)


@provides("joint", level=Level.CONTENT)
def joint(
    source: Source,
    modules: Modules,
    executor: Executor,
    settings: Settings,
    model_config: ModelConfig | None = None,
) -> Sequence[JointProfile]:
    """The attention, the MLP and some experts (all, if exhaustive) of every layer, in the order of layers; by a sample."""
    config = model_config.values if model_config is not None else {}
    chosen = blocks(modules.values(), config, all_experts=settings.exhaustive)
    neurons = EXHAUSTIVE_NEURONS if settings.exhaustive else NUM_NEURONS
    found = profile_blocks(chosen, executor, neurons=neurons, progress=settings.progress)
    return sorted(found, key=lambda one: (one.layer, -1 if one.expert is None else one.expert, sorted(one.modules)))


class _Shelf(msgspec.Struct, frozen=True):
    """Profiles of one target, taken from the cache or read, and kept for the next run."""

    source: Source
    tensors: Mapping[str, TensorInfo]
    settings: Settings
    coverage: Coverage

    def kept(
        self, manner: Callable[[], str], kind: type[Value], read: Callable[[], tuple[Value, Mapping[str, str]]]
    ) -> Value:
        """What was kept for this manner of reading, else what `read` gives; what it could not read is not judged."""
        folder, key = self.settings.cache, self._key(manner)
        known = cache.load(folder, key, kind) if folder and key else None
        if known is not None:
            return known
        found, unread = read()
        for name, reason in unread.items():
            self.coverage.add(name, f"its values were not read: {reason}")
        if folder and key and not unread:
            cache.store(folder, key, found)
        return found

    def _key(self, manner: Callable[[], str]) -> str | None:
        """None where nothing is kept, which saves the work of making one."""
        if not self.settings.cache:
            return None
        how = f"{manner()} sample={self.settings.sample} exhaustive={self.settings.exhaustive}"
        return cache.cache_key(self.source, self.tensors, how)
