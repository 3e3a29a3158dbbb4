"""From ledgers to evidence, and to the table that a report shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from degarble.evidence.half_precision import LARGEST_HALF
from degarble.evidence.overflow_walk import BlockSum, ClippedInput, OverflowWalk, RangeLeft
from degarble.finding import Location
from degarble_engine.overflow.ledger import Event, Ledger
from degarble_engine.overflow.range_walk import EXACT_LANE, RangeWalk
from degarble_engine.overflow.switches import LARGEST, NAMES, Lane

MAX_PEAKS = 12
HEADROOM = 4.0
"""What a rescaled model keeps free of the range: longer texts may reach further than those that were run."""


def evidence_of(walk: RangeWalk, lanes: Sequence[Lane]) -> OverflowWalk:
    """What the rules judge."""
    left: dict[tuple[Any, ...], RangeLeft] = {}
    for lane in lanes:
        found = first_event(walk, lane)
        if found is None:
            continue
        same = _left(walk, lane, found, lanes)
        key = same.dtype, same.place, same.kind, same.location.module
        known = left.get(key)
        left[key] = same if known is None else _joined(known, same)
    clipped, sums = [], []
    for seen in walk.inputs.seen.values():
        place = seen.module.place()
        if seen.reach is not None:
            share = seen.num_clipped / max(1, seen.num_values)
            clipped.append(ClippedInput(location=place, largest=seen.largest, reach=seen.reach, share=share))
        if seen.block_sum is not None:
            sums.append(BlockSum(location=place, largest=seen.largest, sum=seen.block_sum))
    return OverflowWalk(left=tuple(left.values()), clipped=tuple(clipped), block_sums=tuple(sums))


def first_event(walk: RangeWalk, lane: Lane) -> tuple[Event, Ledger] | None:
    """The earliest in the order of computation."""
    found = [(event, ledger) for ledger in walk.of_lane(lane) for event in ledger.events[:1]]
    return min(found, key=lambda one: one[0].layer, default=None)


def _left(walk: RangeWalk, lane: Lane, found: tuple[Event, Ledger], lanes: Sequence[Lane]) -> RangeLeft:
    event, _ = found
    ledgers = walk.of_lane(lane)
    finite = [
        name
        for other in lanes
        if other.dtype == lane.dtype and not any(ledger.events for ledger in walk.of_lane(other))
        for name in other.engines
    ]
    safe = [ledger.safe_tokens for ledger in ledgers if ledger.safe_tokens is not None]
    return RangeLeft(
        location=location_of(walk, event),
        place=event.place,
        kind=event.kind,
        dtype=lane.dtype,
        engines=lane.engines,
        finite_engines=tuple(sorted(finite)),
        value=event.value,
        bound=_bound(lane, event.value),
        token=event.token,
        safe_tokens=min(safe),
        lost_share=_share(ledgers, "lost_share"),
        harmed_share=_share(ledgers, "harmed_share"),
    )


def _bound(lane: Lane, value: float) -> float:
    """The end of the range that was left: fp16's in a lane of bf16 whose sums or cache are fp16 nevertheless."""
    served = LARGEST[NAMES[lane.dtype]]
    keeps_half = NAMES["fp16"] in (lane.switches.gemm_acc, lane.switches.pv_acc, lane.switches.kv)
    is_beyond = math.isfinite(value) and value > served
    return served if is_beyond or not keeps_half else LARGEST[NAMES["fp16"]]


def _largest(*values: float) -> float:
    """Of finite numbers where there is one: a sum that was infinite itself tells no size."""
    return max((one for one in values if math.isfinite(one)), default=max(values))


def _share(ledgers: Sequence[Ledger], name: str) -> float:
    """Over all tokens of all batches."""
    sizes = [int(ledger.valid.sum()) for ledger in ledgers]
    return float(sum(getattr(one, name) * size for one, size in zip(ledgers, sizes, strict=True)) / max(1, sum(sizes)))


def _joined(one: RangeLeft, other: RangeLeft) -> RangeLeft:
    from msgspec.structs import replace

    return replace(
        one,
        engines=tuple(sorted((*one.engines, *other.engines))),
        value=_largest(one.value, other.value),
        token=min(one.token, other.token),
        safe_tokens=min(one.safe_tokens, other.safe_tokens),
        lost_share=max(one.lost_share, other.lost_share),
        harmed_share=max(one.harmed_share, other.harmed_share),
    )


def location_of(walk: RangeWalk, event: Event) -> Location:
    """The stored module where there is one, else the module of the model's code."""
    if event.layer < 0:
        return Location(module=event.module)
    name = f"{walk.model.skeleton.layer_name(event.layer)}.{event.module}".removesuffix(".")
    stored = walk.model.weights.module_of(f"{name}.weight")
    return stored.place() if stored is not None else Location(module=name, layer=event.layer)


def table(walk: RangeWalk, lanes: Sequence[Lane], lengths: Sequence[int]) -> dict[str, object]:
    """For the report: one row an engine and dtype, and the largest numbers of the exact run."""
    rows: list[dict[str, object]] = []
    for lane in lanes:
        found = first_event(walk, lane)
        ledgers = walk.of_lane(lane)
        safe = [one.safe_tokens for one in ledgers if one.safe_tokens is not None]
        for engine in lane.engines:
            rows.append(
                {
                    "engine": engine,
                    "dtype": lane.dtype,
                    "max_safe_length": min(safe) if safe else None,
                    "lengths": {str(length): not safe or min(safe) >= length for length in lengths},
                    "first_layer": found[0].layer if found else None,
                    "first_module": location_of(walk, found[0]).module if found else None,
                    "place": found[0].place if found else None,
                    "kind": found[0].kind if found else None,
                    "token": found[0].token if found else None,
                    "nan_rate": _share(ledgers, "lost_share"),
                    "harmed_rate": _share(ledgers, "harmed_share"),
                }
            )
    return {
        "kind": "overflow",
        "tokens": sum(batch.num_tokens for batch in walk.batches),
        "longest": max(int(batch.valid.sum(1).max()) for batch in walk.batches),
        "rows": sorted(rows, key=lambda row: (str(row["dtype"]), str(row["engine"]))),
        "peaks": peaks(walk)[:MAX_PEAKS],
    }


def peaks(walk: RangeWalk) -> list[dict[str, Any]]:
    """The largest numbers of the exact run, sums of squares apart (no profile but one forms them in half)."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for ledger in walk.of_lane(EXACT_LANE):
        for (layer, module, place), peak in ledger.peaks.items():
            name = module if layer < 0 else f"{walk.model.skeleton.layer_name(layer)}.{module}"
            known = best.get((name, place))
            if place != "sum of squares" and (known is None or known["value"] < peak.value):
                best[name, place] = {"module": name, "place": place, "value": peak.value, "token": peak.token,
                                     "margin": LARGEST_HALF / max(peak.value, 1e-30)}  # fmt: skip
    return sorted(best.values(), key=lambda row: -float(row["value"]))


def upcast(walk: RangeWalk) -> list[str]:
    """Modules whose numbers come within the headroom of fp16's range: to be kept in fp32 if fp16 has to be used."""
    near = [row for row in peaks(walk) if row["margin"] < HEADROOM]
    return sorted({str(row["module"]) for row in near if not str(row["place"]).startswith("q.k")})
