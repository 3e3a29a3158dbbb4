"""What an engine's activations show: modules that compute something else on the input they were given themselves.

    local, of a module       its dumped output against our own forward of it on its dumped input
    local, of an operator    attention and activation: dumped projections put in place of ours, then what comes out of it
    inherited                dumped against the walk's own value

Rounding to the engine's dtype costs a local error of about 0.3 units in the last place; activations in 8 bits cost up to
0.04 in every linear alike. So a module is judged by its peers, from a floor that its dtype sets.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import msgspec
import torch

from degarble.evidence.forward_pass import Blame
from degarble.finding import Location, Measure, Severity

LINEAR, NORM, OPERATOR = "linear", "norm", "operator"
FLOORS = {torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9, torch.float32: 1e-3}
PEERS = 6.0
"""Times the median of its kind."""
MIN_PEERS = 4
EVERYWHERE = {LINEAR: 0.2, NORM: 0.05, OPERATOR: 0.05}
"""Median from which a whole kind is other than the checkpoint's: above 4-bit activations, above an FP8 cache's values."""
MANY = 0.1
WHAT = {
    "attention": "attention (rotary embedding, mask, scale, soft cap or the cache's precision)",
    "activation": "the activation between up and down",
}


class Laid(msgspec.Struct, frozen=True, kw_only=True):
    """One module of the dump beside the walk."""

    module: str
    layer: int
    kind: str
    """linear | norm | operator"""
    operator: str = ""
    """attention | activation"""
    dtype: str
    local: float | None
    inherited: float | None
    cosine: float | None
    max_error: float | None
    breaks: bool = False
    """Gives values that are not finite of finite ones."""

    @property
    def floor(self) -> float:
        """Local error that rounding alone explains."""
        return FLOORS.get(getattr(torch, self.dtype, torch.float32), FLOORS[torch.bfloat16])


def blames(laid: Sequence[Laid]) -> list[Blame]:
    """Guilty ones, the worst first; a kind that is off everywhere is one."""
    found: list[Blame] = []
    for kind in (LINEAR, NORM, OPERATOR):
        members = [one for one in laid if one.kind == kind]
        groups = {one.operator for one in members} if kind == OPERATOR else {""}
        for group in sorted(groups):
            found += _of_kind([one for one in members if one.operator == group], kind)
    return sorted(found, key=lambda one: -float(str(one.measured["local_error"])))


def _of_kind(members: list[Laid], kind: str) -> Iterator[Blame]:
    yield from (_broken(one) for one in members if one.breaks)
    judged = [one for one in members if one.local is not None and math.isfinite(one.local) and not one.breaks]
    if not judged:
        return
    median = statistics.median(one.local or 0.0 for one in judged)
    if median > EVERYWHERE[kind] and len(judged) >= MIN_PEERS:
        yield _everywhere(judged, median, EVERYWHERE[kind])
        return
    usual = median if len(judged) >= MIN_PEERS else 0.0
    for one in judged:
        bound = max(one.floor, PEERS * usual)
        if (one.local or 0.0) > bound:
            yield _outlier(one, bound, median)


def _broken(one: Laid) -> Blame:
    return Blame(
        places=(_place(one),),
        message=f"{one.module}: the engine's {_what(one)} gives values that are not finite of finite ones",
        severity=Severity.ERROR,
        measured={"local_error": math.inf},
        bound={"local_error": one.floor},
    )


def _outlier(one: Laid, bound: float, median: float) -> Blame:
    measured: dict[str, Measure] = {"local_error": _short(one.local), "median_local_error": _short(median)}
    if one.inherited is not None:
        measured["inherited_error"] = _short(one.inherited)
    return Blame(
        places=(_place(one),),
        message=f"{one.module}: the engine's {_what(one)} gives something else on its own input: "
        f"{one.local or 0.0:.1%} away from the checkpoint's, its peers {median:.2%}",
        severity=Severity.ERROR,
        measured=measured,
        bound={"local_error": _short(bound)},
    )


def _everywhere(judged: list[Laid], median: float, bound: float) -> Blame:
    worst_first = sorted(judged, key=lambda one: -(one.local or 0.0))
    return Blame(
        places=tuple(_place(one) for one in worst_first),
        message=f"the engine's {_what(judged[0])} differs from the checkpoint's in {len(judged)} places alike, by "
        f"{median:.1%} in the median",
        severity=Severity.ERROR if median > MANY else Severity.WARNING,
        measured={"local_error": _short(median)},
        bound={"local_error": bound},
    )


def _what(one: Laid) -> str:
    return WHAT.get(one.operator, one.kind)


def _place(one: Laid) -> Location:
    return Location(module=one.module, layer=one.layer)


def _short(value: float | None) -> float:
    return float(f"{value or 0.0:.6g}")
