"""The table of `degarble kv-precision` for people: a row a form of cache, and the layers that stand out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KIND = "kv-precision"
MAX_HAZARDS = 6


def kv_precision_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Plain lines; every value is looked up with care, since a report read back may hold anything."""
    yield f"run on {found.get('tokens', '?')} tokens"[:100]
    yield f"{'cache (keys,values)':>24} {'keys dB':>8} {'values dB':>10} {'KL':>9} {'same first':>11}"
    forms = found.get("forms")
    for form in forms if isinstance(forms, (list, tuple)) else ():
        if not isinstance(form, Mapping):
            continue
        numbers = [_number(form.get(key)) for key in ("median_key_db", "median_value_db", "kl_divergence")]
        share = _number(form.get("top1_agreement"))
        yield f"{str(form.get('form', '?'))[:24]:>24} {numbers[0]:>8} {numbers[1]:>10} {numbers[2]:>9} {share:>11}"
        hazards = form.get("hazards")
        for row in (hazards if isinstance(hazards, (list, tuple)) else ())[:MAX_HAZARDS]:
            if isinstance(row, Mapping):
                yield f"{'':>24} stands out: {row.get('part')} of layer {row.get('layer')}"[:100]


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"
