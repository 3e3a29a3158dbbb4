"""Scales of the KV cache, under the names at which engines look for them."""

from __future__ import annotations

from collections import Counter

from degarble.evidence.stray_kv_scales import StrayKvScale
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.fixes.reference import is_equal_tensor


@repair("move-kv-scale")
def move_kv_scales(job: Job) -> None:
    """Rename a scale of the KV cache that no engine reads to the name that engines read.

    ## What it changes
    Names in the headers and the index; bytes stay. A second copy of a scale that is in place already is dropped.

    ## Why there is one answer
    The name tells layer and kind, the layer has one attention module, and nothing is stored there. The spelling is
    that of the layers whose scales are in place, or the one that the method's own tool writes.

    ## What it cannot do
    Choose between two attention modules of a layer, or between two scales that claim one place. Where another value is
    in place already, that one staying is a judgement.
    """
    named = {place.tensor for place in job.places}
    strays: tuple[StrayKvScale, ...] = job.need("stray_kv_scales")
    wanted = [stray for stray in strays if stray.info.name in named]
    if not wanted:
        raise CannotRepair("the finding names no stored scale")
    claims = Counter(stray.home for stray in strays)
    for stray in wanted:
        if stray.home is None:
            raise CannotRepair(f"{stray.info.name}: layer {stray.layer} has several attention modules")
        if claims[stray.home] > 1:
            raise CannotRepair(f"{claims[stray.home]} stored scales, such as {stray.info.name}, claim {stray.home}")
        _move(job, stray, stray.home)


def _move(job: Job, stray: StrayKvScale, home: str) -> None:
    """Rename it, or drop it where its place is taken."""
    there = job.need("tensors").get(home)
    if there is None:
        job.rename_tensor(stray.info, home)
        return
    source = job.evidence.get("source")
    if not is_equal_tensor(source, stray.info, source, there):
        job.judge(f"{home} is stored with another value than {stray.info.name}, and is taken to be right")
    job.drop_tensor(stray.info, f"{home} is what engines read")
