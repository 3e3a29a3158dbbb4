"""Evidence about modules that engines join into one matrix: q/k/v, gate/up and their relatives, as stored."""

from __future__ import annotations

from collections import defaultdict

from degarble.architectures.interface import Architecture
from degarble.engines.skip_rules import FUSED_PARTS
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.interface import StoredModule

FusedGroup = tuple[StoredModule, ...]


@provides("fused_groups")
def fused_groups(modules: Modules, architecture: Architecture | None = None) -> tuple[FusedGroup, ...]:
    """Every group of at least two stored modules of the text model that an engine would fuse."""
    leaves = (
        [tuple(name.rpartition(".")[2] for name in group) for group in architecture.fused_groups]
        if architecture
        else []
    )
    group_of = {leaf: number for number, group in enumerate([*FUSED_PARTS.values(), *leaves]) for leaf in group}
    found: defaultdict[tuple[object, ...], list[StoredModule]] = defaultdict(list)
    for example, members in modules.classes():
        number = group_of.get(example.template.rpartition(".")[2])
        if number is None or example.canonical is None:
            continue
        stem = example.template.rpartition(".")[0]
        for module in members:  # 46,000 in a large model: numbers are cheaper to hash than names
            found[stem, module.layer, module.expert, number].append(module)
    return tuple(tuple(group) for group in found.values() if len(group) > 1)
