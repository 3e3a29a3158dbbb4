"""Bits, group size, block size or method of the quantisation config, as the stored shapes prove them."""

from __future__ import annotations

from typing import Any

from degarble.evidence.disputes import Dispute
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.scheme import Scheme

METHODS = {"gptq": "gptq", "awq": "awq", "awq_gemv": "awq"}
"""Format that wrote the shapes -> the label that its readers want."""

NUMBERS = frozenset({"bits", "num_bits", "w_bit", "wbits", "group_size", "q_group_size"})
GRIDS = frozenset({"weight_block_size", "block_structure", "block_shape"})


@repair("correct-quantization-config")
def correct_quantization_config(job: Job) -> None:
    """Write what the shapes of the modules prove under the key they contradict.

    ## What it changes
    One key of the quantisation config (with the strategy beside a group size), or the same number where a sidecar
    repeats it.

    ## Why there is one answer
    Most modules that the key governs contradict it in the same way, and all of them prove the same value.

    ## What it cannot do
    Rename an algorithm (`quant_algo`, `load_in_4bit`) or tell a number type: such a config is taken from a reference.
    """
    if _restated(job):
        return
    disputes = [one for one in job.need("disputes") if one.is_config and _is_named(job, one)]
    if not disputes:
        raise CannotRepair("the config is not outvoted here")
    first = disputes[0]
    values = {_proven(first.about, one.members[0].form.scheme, one.members[0].form.format) for one in disputes}
    if len(values) != 1:
        raise CannotRepair(f"the modules prove {len(values)} different values")
    if any(one.num_alike < one.num_governed for one in disputes):
        job.judge("some modules agree with the config as it is")
    _write(job, first, values.pop())


def _is_named(job: Job, dispute: Dispute) -> bool:
    names = {place.module for place in job.places}
    return any(module.name in names for module in dispute.members)


def _restated(job: Job) -> bool:
    """A number that another place of the config repeats wrongly."""
    if "modules" in job.finding.measured or not any(one.module is None for one in job.places):
        return False
    for about in ("num_bits", "group_size"):
        known = job.finding.bound.get(about)
        if isinstance(known, list) and about in job.finding.measured:
            if len(known) != 1:
                raise CannotRepair(f"the stored modules have {len(known)} different values")
            place = job.finding.location
            job.set_key(place.file or "", place.key or "", known[0], "as stored")
            return True
    return False


def _proven(about: str, scheme: Scheme | None, stored_as: str) -> Any:
    """The value in the config's words; hashable, so that modules can be compared."""
    if about == "layout" and stored_as in METHODS:
        return METHODS[stored_as]
    if scheme is None:
        raise CannotRepair("the headers prove no scheme")
    if about == "num_bits" and scheme.num_bits:
        return scheme.num_bits
    if about == "group_size" and scheme.strategy == "channel":
        return -1
    if about == "group_size" and scheme.group_size:
        return scheme.group_size
    if about == "block_grid" and scheme.block_shape:
        return scheme.block_shape
    raise CannotRepair(f"the headers do not prove the {about.replace('_', ' ')}")


def _write(job: Job, dispute: Dispute, value: Any) -> None:
    """The key itself, or its neighbour that carries the number."""
    file, key = dispute.file or "", dispute.key or ""
    holder, _, leaf = key.rpartition(".")
    if dispute.about == "group_size" and leaf == "strategy":
        key, leaf = f"{holder}.group_size", "group_size"
    if dispute.about == "layout" and leaf == "quant_method":
        job.set_key(file, key, value, "as the shapes are packed")
    elif dispute.about == "block_grid" and leaf in GRIDS:
        job.set_key(file, key, list(value), "as the grids are stored")
    elif leaf in NUMBERS:
        job.set_key(file, key, value, "as stored")
        strategy = job.value(file, f"{holder}.strategy")
        if leaf == "group_size" and isinstance(strategy, str):
            job.set_key(file, f"{holder}.strategy", "channel" if value == -1 else "group", "as stored")
    else:
        raise CannotRepair(f"{key} is not a number that could be corrected")
