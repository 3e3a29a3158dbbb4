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
    """For the report: `dtype` with `not_in` (engines that leave its range too), `upcast`, and `rescale` (a command) or
    `no_rescale` (why there is none). Of dtypes that are whole in as many engines the narrowest is advised.
    """
    whole, broken = ({dtype: _engines(walk, lanes, dtype, lost) for dtype in WIDEST_LAST} for lost in (False, True))
    best = max(WIDEST_LAST, key=lambda dtype: len(whole[dtype]))
    found: dict[str, Any] = {"dtype": best if whole[best] else None, "not_in": broken[best], "upcast": upcast(walk)}
    if not broken["fp16"]:
        return found
    try:
        found["rescale"] = _rescale(_places(walk, lanes, "fp16"), source)
    except EvidenceMissing as reason:
        found["no_rescale"] = str(reason)
    return found


def _engines(walk: RangeWalk, lanes: Sequence[Lane], dtype: str, is_lost: bool) -> list[str]:
    """Engines in whose arithmetic a dtype leaves its range, or those in which it stays whole."""
    found = [one for one in lanes if one.dtype == dtype and (first_event(walk, one) is not None) == is_lost]
    return sorted(name for lane in found for name in lane.engines)


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
            f"{', '.join(sorted(places))}: by the weights alone the first tokens reach {largest:.5g}, more than "
            f"{SAFE_MARGIN:g} times below fp16's end, so that the rule plans nothing"
        )
    target = shlex.quote(source.path)
    out = shlex.quote(f"{source.path.rstrip('/')}-rescaled")
    return f"degarble fix {target} --select NUM301 --unsafe --dtype float16 --out {out}"
