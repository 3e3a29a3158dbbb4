"""Zero points in the order that their codes have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule

ORDERS = ((0, 2, 4, 6, 1, 3, 5, 7), (0, 4, 1, 5, 2, 6, 3, 7), (7, 6, 5, 4, 3, 2, 1, 0), (1, 0, 3, 2, 5, 4, 7, 6))
"""AWQ's, its inverse, from the other end, pairs swapped."""

RESTORED = 0.8
"""Correlation of zero points with the mean codes of their groups: healthy 0.83 and more."""
CLEARLY = 0.2
"""By how much the best order must beat the next."""


@repair("reorder-zero-points")
def reorder_zero_points(job: Job) -> None:
    """Pack the zero points again in the order in which they follow the codes of their groups.

    ## What it changes
    The order of zero points along the outputs. Codes and scales stay.

    ## Why there is one answer
    Of the orders that packers are known to use, one alone restores the correlation with the mean codes. It does not
    say whether codes or zero points were moved, so the step counts as a judgement.

    ## What it cannot do
    Find an order that no packer is known to use.
    """
    job.judge("zero points are taken to be out of order, and the codes to be right")
    for module in job.modules_at_places():
        zeros, means = module.zeros(), _mean_codes(module)
        if zeros is None:
            raise CannotRepair(f"{module.name} has no zero points")
        ranked = sorted(
            ((_correlation(means, table), name, table) for name, table in _candidates(zeros)),
            key=lambda one: -one[0],
        )
        best, name, table = ranked[0]
        if best < RESTORED or best - ranked[1][0] < CLEARLY:
            raise job.cannot(f"{module.name}: no known order restores its zero points", [module.any_part.name])
        job.replace(module, name, zeros=table)


def _candidates(zeros: Array) -> Iterator[tuple[str, Array]]:
    """Every known order of the outputs, undone."""
    rows = zeros.shape[0]
    for order in ORDERS if rows % 8 == 0 else ():
        table = zeros.reshape(-1, 8, zeros.shape[1])[:, np.argsort(order)].reshape(zeros.shape)
        yield f"put back from the order {' '.join(map(str, order))}", np.ascontiguousarray(table)
    for step in (-1, 1):
        yield f"moved {'back' if step < 0 else 'on'} by one output", np.roll(zeros, step, axis=0)


def _mean_codes(module: StoredModule) -> Array:
    """[out, groups] mean code of every group."""
    codes, index = module.codes().astype(np.float32), module.group_index()
    if index is None:
        raise CannotRepair(f"{module.name} has no groups")
    order = np.argsort(index, kind="stable")
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    sums = np.add.reduceat(codes[:, order], starts, axis=1)
    return np.asarray(sums / np.diff(np.append(starts, index.size)))


def _correlation(one: Array, other: Array) -> float:
    if one.shape != other.shape or not float(one.std()) or not float(other.std()):
        return 0.0
    return float(np.corrcoef(one.reshape(-1), other.reshape(-1).astype(np.float64))[0, 1])
