"""A NaN among the scales of blocks whose codes are all zero."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("finite-zero-blocks")
def finite_zero_blocks(job: Job) -> None:
    """Give a block that holds nothing but zeros a scale of one.

    ## What it changes
    NaN and infinite scales of groups or blocks whose codes all stand at zero.

    ## Why there is one answer
    Every weight of such a block is zero whatever its scale, as long as it is a number: the decoded weights are the same
    for all of them.

    ## What it cannot do
    Give back the scale of a block that holds anything else: the module then has to be quantised again.
    """
    for module in job.modules_at_places():
        scales, codes = module.scales(), module.codes().astype(np.int64)
        zeros, index = module.zeros(), module.group_index()
        lost = ~np.isfinite(scales)
        if index is None or scales.shape[0] != codes.shape[0] or module.array("scale").shape != scales.shape:
            raise CannotRepair(f"{module.name}: blocks of this format are not looked at")
        values = codes if zeros is None else codes - zeros[:, index]
        used = _used_groups(module, values, index, scales.shape[1])
        if bool((lost & used).any()):
            raise job.cannot(f"{module.name}: a block without a scale holds other values than zero", [_scale(module)])
        stored = module.array("scale").copy()
        stored[lost] = 1
        job.set_part(module, "scale", stored, "one, for blocks of zeros")


def _used_groups(module: StoredModule, values: Array, index: Array, groups: int) -> Array:
    """[out, groups] whether anything in the group is not zero. -0 of FP4 is zero too."""
    is_minus_zero = 8 if module.form.scheme is not None and module.form.scheme.type == "float" else None
    nonzero = (values != 0) if is_minus_zero is None else (values != 0) & (values != is_minus_zero)
    used = np.zeros((values.shape[0], groups), bool)
    for group in range(groups):
        used[:, group] = nonzero[:, index == group].any(axis=1)
    return used


def _scale(module: StoredModule) -> str:
    return module.parts[module.form.roles["scale"]].name
