"""Tables of scales that hold every group more than once, cut to the groups that there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.declared_key import declared_key
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule

TABLES = ("scale", "zero_point")


@repair("write-group-size", "regroup-scales")
def collapse_groups(job: Job) -> None:
    """Keep one of each run of equal scales and zero points, and declare the group size that is left.

    ## What it changes
    Scales, zero points and group indices of the modules, and the group size in the config and where it is repeated.
    The codes stay.

    ## Why there is one answer
    The codes were quantised in larger groups, and the tables hold nothing else: each run is one number written several
    times (or the whole table is written several times), byte for byte.

    ## What it cannot do
    Where a table holds numbers of its own for the finer groups, it is not the table of these codes. It has to be
    fetched, or the module quantised again.
    """
    singles = job.singles()
    sizes = {size for one in singles if isinstance(size := one.measured.get("actual_group_size"), int)}
    if len(sizes) != 1:
        raise job.cannot("the real group size is not known", _tables_of(job.modules_at_places()))
    collapse(job, job.modules_at_places(), sizes.pop())
    _declare(job)


def collapse(job: Job, modules: Sequence[StoredModule], size: int) -> None:
    """Cut the tables of modules to groups of `size`. Raises CannotRepair if that would lose a number."""
    for module in modules:
        scheme, shape = module.form.scheme, module.form.shape
        stored = scheme.group_size if scheme is not None else None
        if not stored or size % stored or shape is None or shape[-1] % size:
            raise job.cannot(f"{module.name}: groups of {stored} cannot become groups of {size}", _tables_of([module]))
        for role in TABLES:
            if module.part(role) is not None:
                kept = _collapsed(job, module, role, shape[-1] // stored, size // stored)
                job.set_part(module, role, kept, f"one of {size // stored} equal groups")
        _regroup_index(job, module, size)


def _collapsed(job: Job, module: StoredModule, role: str, groups: int, factor: int) -> Array:
    """One of each run, or the first of several equal tables."""
    table = module.array(role)
    axis = _group_axis(module, role)
    if table.shape[axis] != groups:
        raise CannotRepair(f"{module.name}: {role} does not count groups along its axis")
    runs = np.moveaxis(table, axis, 0).reshape(groups // factor, factor, -1)
    tiles = np.moveaxis(table, axis, 0).reshape(factor, groups // factor, -1)
    for pieces, along in ((runs, 1), (tiles, 0)):
        first = np.take(pieces, [0], axis=along)
        if (pieces.view(f"u{pieces.itemsize}") == first.view(f"u{first.itemsize}")).all():
            rest = [length for number, length in enumerate(table.shape) if number != axis % table.ndim]
            kept = first.reshape(groups // factor, *rest)
            return np.ascontiguousarray(np.moveaxis(kept, 0, axis))
    raise job.cannot(f"{module.name}: the {role} of finer groups has numbers of its own", _tables_of([module]))


def _group_axis(module: StoredModule, role: str) -> int:
    place = module.format.axes.get(role, (None, None))[1]
    if place is None:
        raise CannotRepair(f"{module.form.format}: the axis of groups is not known")
    return place[0]


def _regroup_index(job: Job, module: StoredModule, size: int) -> None:
    if module.part("g_idx") is None:
        return
    index = module.array("g_idx")
    if bool((np.diff(index) < 0).any()):
        raise CannotRepair(f"{module.name}: the inputs are shuffled")
    job.set_part(module, "g_idx", (np.arange(index.size) // size).astype(index.dtype), "groups of the real size")


def _declare(job: Job) -> None:
    """The real size, wherever the config or a sidecar has the old one."""
    size = next(one.measured["actual_group_size"] for one in job.singles())
    declaration = job.declaration
    key = declared_key(declaration, job.modules_at_places()[0].name, "group_size")
    if not isinstance(job.value(declaration.file, key), int):
        raise CannotRepair(f"{key} is no group size")
    job.set_key(declaration.file, key, size, "as the codes were quantised")
    for item in job.evidence.find("restatements") or ():
        if item.about == "group_size":
            job.set_key(item.file, item.key, size, "as the codes were quantised")


def _tables_of(modules: Sequence[StoredModule]) -> list[str]:
    return [part.name for module in modules for role in TABLES if (part := module.part(role)) is not None]
