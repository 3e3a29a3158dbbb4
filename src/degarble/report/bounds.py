"""`compare --bounds` for people: each bound beside the error by role of module, then how the layers' errors add up.

A report read back from a file may hold anything here, so every number is looked up with care.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = {
    "deterministic": "determ.",
    "Cauchy-Schwarz": "C-S",
    "spectral": "spectral",
    "Hoeffding 1e-9": "Hoeffd.",
    "origin, largest entries": "printed",
}
"""Bound in the report -> heading of its column."""
PRINTED = "origin, largest entries"
MAX_ROLES, MAX_LEDGER = 20, 3


def bounds_lines(bounds: object) -> Iterator[str]:
    """Plain lines, none longer than 100 characters; none at all where bounds were not asked for."""
    if not isinstance(bounds, Mapping):
        return
    rows = _rows(bounds.get("table"))
    if rows:
        yield "error bounds on the reference's input: rms over rms of the output; ! is vacuous (above 1)"
        heads = "".join(f"{head:>9}" for head in SHOWN.values())
        yield f"{'role':<12}{'modules':>8}{'error':>8}{'sigma':>8}{'in 2σ':>8}{'z':>7}{heads}"
    for row in rows[:MAX_ROLES]:
        columns = "".join(f"{_bound(row, name):>9}" for name in SHOWN)
        yield (
            f"{str(row.get('role', '?'))[:12]:<12}{_number(row.get('modules')):>8}{_number(row.get('error')):>8}"
            f"{_number(row.get('predicted')):>8}{_share(_at(row.get('coverage'), 1)):>8}"
            f"{_number(_at(row.get('z'), 1)):>7}{columns}"
        )
    if rows:
        yield from _verdict(bounds, rows[-1])
    for reason, count in list(_mapping(bounds.get("not_judged")).items())[:MAX_ROLES]:
        yield f"no bounds for {_number(count)} modules: {reason}"[:100]
    yield from _propagation(bounds)


def _verdict(bounds: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    expected = _share(_at(bounds.get("expected_coverage"), 1))
    kept = _mapping(row.get("bounds"))
    vacuous = [name for name in SHOWN if _mapping(kept.get(name)).get("vacuous") is True]
    yield f"in 2σ: {expected} is expected of honest rounding"
    if vacuous:
        yield f"vacuous: {', '.join(vacuous).replace(PRINTED, 'the printed formula')}"
    inside = _mapping(_mapping(row.get("bounds")).get(PRINTED)).get("inside")
    if inside is not None:
        claimed = _share(bounds.get("claimed_share"))
        yield f"printed formula, largest entries: {_share(inside)} inside; its source says {claimed}"


def _propagation(bounds: Mapping[str, Any]) -> Iterator[str]:
    found = bounds.get("propagation")
    if not isinstance(found, Mapping):
        yield "how errors add up was not measured: outputs cannot be compared, or the walk was resumed without it"
        return
    yield (
        f"error at the end {_number(found.get('measured'))}: layers in quadrature {_number(found.get('quadrature'))}, "
        f"by probes {_number(found.get('probed'))}, summed {_number(found.get('linear_sum'))}"
    )
    ledger = [row for row in _rows(found.get("layers")) if isinstance(row.get("kl"), (int, float))]
    ledger.sort(key=lambda row: -row["kl"])
    most = ", ".join(f"layer {_number(row.get('layer'))} {_number(row['kl'])}" for row in ledger[:MAX_LEDGER])
    yield f"KL {_number(found.get('kl'))} nats, single layers sum to {_number(found.get('kl_sum'))}; most: {most}"[:100]
    yield (
        f"the error grows with depth to the power of {_number(found.get('growth_exponent'))}; a layer takes a relative "
        f"error times {_number(found.get('contraction'))}"
    )


def _bound(row: Mapping[str, Any], name: str) -> str:
    one = _mapping(_mapping(row.get("bounds")).get(name))
    return _number(one.get("relative")) + "!" * (one.get("vacuous") is True)


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, (list, tuple)) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _at(value: object, index: int) -> object:
    return value[index] if isinstance(value, (list, tuple)) and len(value) > index else None


def _number(value: object) -> str:
    return "-" if isinstance(value, bool) or not isinstance(value, (int, float)) else f"{value:.3g}"


def _share(value: object) -> str:
    return "-" if isinstance(value, bool) or not isinstance(value, (int, float)) else f"{value:.1%}"
