"""What to do about a model that leaves fp16's range: another dtype, modules in fp32, or a rescale that keeps the function.

The rescale is the repair of NUM301, which plans from the weights alone (see evidence/half_reach.py). It is named with its
command only where that rule finds something to rescale; else the reason stands there.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from degarble.checkpoint.interface import Source
from degarble.checks.numerics.trained_bf16_served_fp16 import SAFE_MARGIN, first_token_beyond_half
from degarble.errors import EvidenceMissing
from degarble.evidence import Evidence, Settings
from degarble.evidence.half_reach import HalfReach
from degarble_engine.overflow.range_walk import RangeWalk
from degarble_engine.overflow.switches import Lane
from degarble_engine.overflow.verdict import first_event, upcast

UNMOVED = frozenset({"q.k", "P.V accumulator", "key in the cache", "value in the cache", "router"})
"""Places that neither the residual stream's scale nor that of gate x up changes: norms stand before them."""
WIDEST_LAST = ("fp16", "bf16", "fp32")


def advice(walk: RangeWalk, lanes: Sequence[Lane], source: Source) -> dict[str, Any]:
    """For the report: `dtype`, `upcast`, and `rescale` (a command) or `no_rescale` (why there is none)."""
    places = {dtype: _places(walk, lanes, dtype) for dtype in WIDEST_LAST if any(one.dtype == dtype for one in lanes)}
    whole = [dtype for dtype, found in places.items() if not found]
    found: dict[str, Any] = {"dtype": whole[0] if whole else None, "whole": whole, "upcast": upcast(walk)}
    if not places.get("fp16"):
        return found
    try:
        found["rescale"] = _rescale(places["fp16"], source)
    except EvidenceMissing as reason:
        found["no_rescale"] = str(reason)
    return found


def _places(walk: RangeWalk, lanes: Sequence[Lane], dtype: str) -> set[str]:
    """Where lanes of a dtype leave the range first."""
    events = [first_event(walk, lane) for lane in lanes if lane.dtype == dtype]
    return {found[0].place for found in events if found is not None}


def _rescale(places: set[str], source: Source) -> str:
    """The command. Raises EvidenceMissing with the reason where the static rule plans none."""
    if places <= UNMOVED:
        raise EvidenceMissing(f"{', '.join(sorted(places))}: not changed by the scale of the stream or of gate x up")
    reach: HalfReach = Evidence(source, Settings(dtype="float16")).get("half_reach")
    if not list(first_token_beyond_half(reach)):
        largest = max(row.estimate for row in reach.rows)
        raise EvidenceMissing(
            f"by the weights alone the first tokens reach {largest:.5g}, which leaves more than {SAFE_MARGIN:g} times "
            "that free: how far this text reaches is not known to the rule"
        )
    target = shlex.quote(source.path)
    out = shlex.quote(f"{source.path.rstrip('/')}-rescaled")
    return f"degarble fix {target} --select NUM301 --unsafe --dtype float16 --out {out}"
