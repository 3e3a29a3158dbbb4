"""The ladder of tests, and bounds by what kind of rounding the candidate's peers show.

    exact           median weight z below 1e-3: an unquantised copy; anything above 3 is a fault
    plain           0.8 to 1.1: round to nearest
    compensated     above 1.1: GPTQ and its kind, whose error is shaped by data
    unknown         no scales in the file, or stored unquantised with the error of a quantised weight: judged by its peers

score = max over tests of log(value / bound). Bounds and the healthy extremes they stand above (13 healthy files of a
135M model, 2,730 modules, no error): docs/explanation; they were set on those files, so the rate outside is not known.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from degarble_engine.attribution.measures import CONSTANT_ERROR, Measures

EXACT, PLAIN, COMPENSATED, UNKNOWN = "exact", "plain", "compensated", "unknown"
EXACT_Z, PLAIN_MIN_Z, PLAIN_MAX_Z = 1e-3, 0.5, 1.1
FAKE_QUANTIZED_Z = 1.5
"""Median weight z, in ulps of the stored dtype, above which plain weights carry somebody's rounding."""
ALWAYS = 1e3
"""Score of what needs no statistics: a value that is not finite."""
MAX_USUAL_SLOPE = 0.03
MIN_PEERS = 4
"""Fewer modules of one scheme have no median to speak of: they are judged as plain rounding."""

BOUNDS: dict[str, dict[str, float]] = {
    EXACT: {"weight_z": 3.0, "row_weight_z": 10.0, "z": 3.0, "slope": 0.004, "row_slope": 0.02, "relative": 0.02},
    PLAIN: {"slope": 0.015, "row_slope": 0.25, "z": 1.3, "row_z": 6.5, "weight_z_of_peers": 1.12,
            "row_weight_z_of_peers": 1.9, "offset": 0.1},
    COMPENSATED: {"slope": 0.015, "row_slope": 0.4, "relative": 0.5, "offset": 0.1},
    UNKNOWN: {"slope": 0.015, "row_slope": 0.4, "weight_z_of_high_peers": 1.35, "row_over_weight_z": 6.0,
              "relative": 0.6, "offset": 0.15},
}  # fmt: skip
"""Offsets: 23 healthy files by seven tools, 4,830 modules, reach 0.022 stored steps, and 0.041 reference steps at two bits."""
ALONE_Z, CORROBORATED = 1.6, 1.05
"""z counts by itself above the first; below it only where the weights differ too: searched scales clip what the largest
activations meet, which gives 1.31 to 1.54 in healthy files."""
USUAL_BITS, COARSER = 4, ("slope", "row_slope", "relative")
"""Bounds that double with every bit less: small weights beside a large one round to nothing, and the slope with them."""
COMPENSATED_Z = 1.7
"""A compensated module above it is reported with its damage, as a warning: its peers reach 1.55."""
STRUCTURAL = ("not_finite", "slope", "row_slope", "offset")
"""Tests whose evidence is more than a large error; they go first where damage is equal."""


@dataclass(slots=True, kw_only=True)
class Suspect:
    """A module that breaks a bound."""

    measures: Measures
    rounding: str
    """The class its peers are in."""
    test: str
    value: float
    bound: float
    score: float
    is_warning: bool = False

    @property
    def is_bias(self) -> bool:
        """Whether the error is one constant vector while the weights agree."""
        weight_z = self.measures.weight_z if self.measures.weight_z is not None else self.measures.reference_z
        return self.test in ("z", "row_z") and self.measures.constant > CONSTANT_ERROR and weight_z < PLAIN_MAX_Z


@dataclass(slots=True)
class Peers:
    """What modules of one scheme have in common."""

    rounding: str
    weight_zs: list[float] = field(default_factory=list)
    slopes: list[float] = field(default_factory=list)

    @property
    def slope(self) -> float:
        """What the format itself does to every slope: MXFP4's power-of-two scales clip, and leave 0.98. 1 if it is more."""
        usual = statistics.median(self.slopes) if len(self.slopes) >= MIN_PEERS else 1.0
        return usual if abs(usual - 1) < MAX_USUAL_SLOPE else 1.0

    @property
    def median(self) -> float:
        """Median weight z."""
        return max(statistics.median(self.weight_zs), 1e-9) if self.weight_zs else 1.0

    @property
    def high(self) -> float:
        """95 % quantile of weight z."""
        ordered = sorted(self.weight_zs)
        return max(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 1e-9) if ordered else 1.0


def peers_of(measures: Sequence[Measures]) -> dict[str, Peers]:
    """The class of every scheme, from the median weight z of its modules."""
    by_scheme: defaultdict[str, list[Measures]] = defaultdict(list)
    for one in measures:
        by_scheme[one.scheme].append(one)
    return {scheme: _peers(members) for scheme, members in by_scheme.items()}


def _peers(members: list[Measures]) -> Peers:
    known = [one.weight_z for one in members if one.has_steps and one.weight_z is not None and one.finite]
    plain = members[0].scheme == "plain"
    slopes = [one.inner_slope for one in members if one.finite]
    if len(known) * 2 > len(members):
        median = statistics.median(known)
        rounding = _class(median, plain, len(known))
        if rounding != UNKNOWN:
            return Peers(rounding, known, slopes)
    return Peers(UNKNOWN, [one.reference_z for one in members], slopes)


def _class(median: float, plain: bool, count: int) -> str:
    if median < EXACT_Z or (plain and median <= FAKE_QUANTIZED_Z):
        return EXACT
    if plain:
        return UNKNOWN
    return COMPENSATED if median > PLAIN_MAX_Z and count >= MIN_PEERS else PLAIN


def suspects(measures: Sequence[Measures]) -> list[Suspect]:
    """Every module that breaks a bound of its class, the worst first."""
    peers = peers_of(measures)
    found = [suspect for one in measures if (suspect := _judge(one, peers[one.scheme])) is not None]
    return sorted(found, key=lambda one: (one.is_warning, -one.score))


def _judge(one: Measures, peers: Peers) -> Suspect | None:
    if not one.finite or not math.isfinite(one.relative):
        return Suspect(
            measures=one, rounding=peers.rounding, test="not_finite", value=math.inf, bound=0.0, score=ALWAYS
        )
    bounds = dict(BOUNDS[peers.rounding])
    if one.bits is not None and one.bits < USUAL_BITS:
        for name in COARSER:
            if name in bounds:
                bounds[name] *= 2 ** (USUAL_BITS - one.bits)
    scores = {
        test: (value, bound, math.log(max(value, 1e-30) / bound))
        for test, value in _values(one, peers)
        if (bound := bounds.get(test)) is not None
    }
    test = max(scores, key=lambda name: scores[name][2], default=None)
    if test is not None and scores[test][2] > 0:
        value, bound, score = scores[test]
        return Suspect(measures=one, rounding=peers.rounding, test=test, value=value, bound=bound, score=score)
    if peers.rounding == COMPENSATED and one.z is not None and one.z > COMPENSATED_Z:
        score = math.log(one.z / COMPENSATED_Z)
        return Suspect(measures=one, rounding=peers.rounding, test="z", value=one.z, bound=COMPENSATED_Z, score=score,
                       is_warning=True)  # fmt: skip
    return None


def _values(one: Measures, peers: Peers) -> Iterator[tuple[str, float]]:
    yield "slope", min(abs(one.slope - 1), abs(one.inner_slope - 1), abs(one.inner_slope / peers.slope - 1))
    yield "row_slope", abs(one.row_slope - 1)
    yield "relative", one.relative
    if peers.rounding == UNKNOWN:
        yield "offset", one.reference_offset
        yield "weight_z_of_high_peers", one.reference_z / peers.high
        yield "row_over_weight_z", one.row_reference_z / max(one.reference_z, 1e-9)
        return
    if one.z is not None and one.row_z is not None:
        if one.z > ALONE_Z or (one.weight_z or 0.0) > CORROBORATED * max(peers.median, 1.0) or peers.rounding == EXACT:
            yield "z", one.z
        yield "row_z", one.row_z
    if one.offset is not None:
        yield "offset", one.offset
    if one.weight_z is not None and one.row_weight_z is not None:
        yield "weight_z", one.weight_z
        yield "row_weight_z", one.row_weight_z
        usual = max(peers.median, 1.0)  # honest rounding costs 1; formats with one scale a row come below it
        yield "weight_z_of_peers", one.weight_z / usual
        yield "row_weight_z_of_peers", one.row_weight_z / usual
