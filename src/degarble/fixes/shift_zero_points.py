"""Zero points that are one too high or too low, shifted back field by field."""

from __future__ import annotations

import numpy as np

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("shift-zero-points")
def shift_zero_points(job: Job) -> None:
    """Add or subtract one in every zero point of a module.

    ## What it changes
    The packed zero points; each field on its own, so that no borrow runs into the neighbour. Codes and scales stay.

    ## Why there is one answer
    The mean code of nearly every group lies one step beside its zero point, on the same side. As long as no zero point
    stands at the end of the range towards which they were shifted, none was cut off there, and shifting back is exact.

    ## What it cannot do
    Where zero points stand at that end, or a format stores none so that the codes themselves were moved, some values
    may have been clipped: shifting back is then a judgement, right but for those. So is a single module whose shift is
    only a hint.
    """
    shifts = {one.location.module: one.measured.get("median_code_minus_zero") for one in job.singles()}
    if job.finding.confidence == "hint":
        job.judge("the shift of a single module is only a hint")
    for module in job.modules_at_places():
        shift = shifts.get(module.name)
        if not isinstance(shift, int | float):
            raise CannotRepair(f"{module.name}: no shift was measured")
        _shift(job, module, -1 if shift < 0 else 1)


def _shift(job: Job, module: StoredModule, step: int) -> None:
    """`step` -1: they are one too high."""
    scheme = module.form.scheme
    if scheme is None or not scheme.num_bits:
        raise CannotRepair(f"{module.name}: the width is not known")
    top = (1 << scheme.num_bits) - 1
    zeros = module.zeros() if module.part("zero_point") is not None else None
    codes = module.codes()
    offset = 1 << (scheme.num_bits - 1) if codes.dtype == np.int8 else 0
    if zeros is None:
        job.judge(f"{module.name} stores no zero points: its codes were moved, and some may have been clipped")
        moved = np.clip(codes.astype(np.int32) + offset - step, 0, top) - offset
        job.replace(module, "moved back by one", codes=moved.astype(codes.dtype))
        return
    fields = zeros.astype(np.int32) + offset
    end = top if step < 0 else 0
    if bool((fields == end).any()) or bool((fields + step < 0).any()) or bool((fields + step > top).any()):
        job.judge(f"{int((fields == end).sum())} zero points of {module.name} stand at the end of the range")
    job.replace(module, "shifted back by one", zeros=np.clip(fields + step, 0, top) - offset)
