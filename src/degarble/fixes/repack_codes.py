"""Codes in the order that their format promises."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.pack_orders import packs_outputs
from degarble.finding import Finding
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("repack-codes")
def repack_codes(job: Job) -> None:
    """Put codes back into their places inside every word, and zero points that are packed like them.

    ## What it changes
    The order of codes along the packed axis, in eights or thirty-twos. Values and scales stay.

    ## Why there is one answer
    A permutation loses nothing, and one order alone makes rows and columns of neighbouring modules agree. But that is
    statistical evidence, so the step counts as a judgement.

    ## What it cannot do
    Where two modules fit each other only in opposite orders and nothing tells which of them was permuted, neither is
    touched.
    """
    job.judge("the order is told by statistics, not by the file")
    singles = [one for one in job.singles() if "order" in one.measured]
    unclear = next((one for one in singles if "(or those of" in one.message), None)
    if unclear is not None:
        raise CannotRepair(unclear.message)
    orders = {one.location.module: _order(one) for one in singles}
    if (job.finding.location.file or "").endswith(".json"):
        orders = _everywhere(job, orders)
    for name, order in orders.items():
        module = job.modules.get(name or "")
        if module is not None:
            _reorder(job, module, order)


def _order(single: Finding) -> list[int]:
    return [int(place) for place in str(single.measured["order"]).split()]


def _everywhere(job: Job, told: dict[str | None, list[int]]) -> dict[str | None, list[int]]:
    """Most modules that can be told are in one order: then all that are packed alike are."""
    examples = [job.modules[name] for name in told if name is not None and name in job.modules]
    if len({tuple(order) for order in told.values()}) != 1 or not examples:
        raise CannotRepair("the modules are in several orders")
    order = next(iter(told.values()))
    forms = {module.form.format for module in examples}
    return {
        module.name: order
        for module in job.modules.values()
        if module.form.format in forms and module.kind == "linear" and not module.form.missing
    }


def _reorder(job: Job, module: StoredModule, order: list[int]) -> None:
    """Along the axis whose codes share a word."""
    codes = module.codes()
    zeros = module.zeros() if module.part("zero_point") is not None else None
    what = f"put back from the order {' '.join(map(str, order))} inside words"
    if not packs_outputs(module):
        job.replace(module, what, codes=np.ascontiguousarray(permuted(codes.T, order).T))
    elif zeros is None:
        job.replace(module, what, codes=permuted(codes, order))
    else:
        job.replace(module, what, codes=permuted(codes, order), zeros=permuted(zeros, order))


def permuted(values: Array, order: list[int]) -> Array:
    """Rows of every run of `len(order)` put back: what lies at place p belongs to place order[p]."""
    if values.shape[0] % len(order):
        raise CannotRepair(f"{values.shape[0]} rows are no multiple of {len(order)}")
    grouped = values.reshape(-1, len(order), values.shape[1])
    back = np.argsort(order)
    return np.ascontiguousarray(grouped[:, back].reshape(values.shape))
