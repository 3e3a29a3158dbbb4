"""One global scale for the parts of a fused matrix."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.fused_groups import FusedGroup
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats import float8
from degarble.formats.interface import StoredModule

MULTIPLIES = {"nvfp4": False, "modelopt_nvfp4": True}
"""Format -> whether its global scale multiplies (amax / 2688) or divides (2688 / amax)."""


@repair("unify-fused-scales")
def unify_fused_scales(job: Job) -> None:
    """Give q/k/v, or gate/up, one global scale, and rescale the block scales of the others.

    ## What it changes
    Global and block scales of the parts that had a smaller range. The codes stay, and so do the weights but for the
    rounding of E4M3 block scales.

    ## Why there is one answer
    The joined matrix has one global scale; only that of the largest range can hold all parts, and the block scales
    follow from it.

    ## What it cannot do
    Keep the last bits: block scales are rounded to E4M3 again. A block scale that would fall to zero is refused, and
    the module has to be quantised again.
    """
    names = {place.module for place in job.places}
    groups: tuple[FusedGroup, ...] = job.need("fused_groups")
    chosen = [group for group in groups if any(module.name in names for module in group)]
    for group in chosen:
        members = [module for module in group if module.part("global_scale") is not None]
        if any(module.form.format not in MULTIPLIES for module in members) or len(members) < 2:
            raise CannotRepair(f"{group[0].name}: no global scales that could be unified")
        _unify(job, members)


def _unify(job: Job, members: list[StoredModule]) -> None:
    multiplies = MULTIPLIES[members[0].form.format]
    stored = {module.name: module.array("global_scale") for module in members}
    widest = (max if multiplies else min)(stored.values(), key=lambda array: float(array.max()))
    for module in members:
        mine = stored[module.name]
        if bool((mine == widest).all()):
            continue
        ratio = np.float32(mine.max() / widest.max()) if multiplies else np.float32(widest.max() / mine.max())
        info = module.parts[module.form.roles["scale"]]
        scales = float8.decode(module.array("scale").view("u1"), info.dtype)
        rescaled: Array = float8.encode(scales * ratio, info.dtype)
        if bool(((float8.decode(rescaled, info.dtype) == 0) & (scales != 0)).any()):
            raise CannotRepair(f"{module.name}: a block scale would become zero")
        job.replace(
            module, "rescaled to the group's global scale", scale=rescaled, global_scale=widest.astype(mine.dtype)
        )
