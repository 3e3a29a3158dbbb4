"""The table of `degarble quantize` for people: what was made, the matrices that lost most, and what should be known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KIND = "quantize"
MAX_NOTES, MAX_ROWS = 8, 12
WIDTH = 100


def quantize_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Plain lines; every value is looked up with care, since a report read back may hold anything."""
    text = found.get("calibration")
    on = f", on {text.get('tokens', '?')} tokens" if isinstance(text, Mapping) else ""
    yield (
        f"{found.get('matrices', '?')} linears as {found.get('scheme', '?')} by {found.get('method', '?')}{on}, "
        f"{_number(found.get('bits'))} bits a weight; verified: {found.get('verified', '?')}"
    )[:WIDTH]
    ran = found.get("smoke")
    if isinstance(ran, Mapping):
        yield (
            f"run once: KL {_number(ran.get('kl_divergence'))} nats, same first choice "
            f"{_number(ran.get('top1_agreement'))}, {_number(ran.get('tokens'))} tokens of {ran.get('text', '?')}"
        )[:WIDTH]
    plan = found.get("plan")
    if isinstance(plan, Mapping):
        shares = plan.get("weights_by_scheme")
        named = (
            ", ".join(f"{name} {_number(count)}" for name, count in shares.items())
            if isinstance(shares, Mapping)
            else "?"
        )
        yield (
            f"planned for {_number(plan.get('target_bits'))} bits: KL about {_number(plan.get('cost'))} where one scheme "
            f"for all costs {_number(plan.get('uniform_cost'))}"
        )[:WIDTH]
        yield f"weights: {named}"[:WIDTH]
    rows = _list(found, "worst")
    if rows:
        yield f"{'error':>9} {'by rounding':>12} {'tokens':>8}  module"
    for row in rows[:MAX_ROWS]:
        if isinstance(row, Mapping):
            numbers = (_number(row.get("error")), _number(row.get("plain_error")), _number(row.get("tokens")))
            yield f"{numbers[0]:>9} {numbers[1]:>12} {numbers[2]:>8}  {str(row.get('module', '?'))[-60:]}"
    plain, notes = _list(found, "left_plain"), _list(found, "notes")
    if plain:
        yield f"left plain: {', '.join(str(one)[:60] for one in plain[:3])}{_more(plain, 3)}"[:WIDTH]
    for note in notes[:MAX_NOTES]:
        yield f"note: {note}"[:WIDTH]
    if len(notes) > MAX_NOTES:
        yield f"note:{_more(notes, MAX_NOTES)}"


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    return list(value) if isinstance(value, (list, tuple)) else []


def _more(values: list[Any], shown: int) -> str:
    return f" and {len(values) - shown} more" if len(values) > shown else ""


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"
