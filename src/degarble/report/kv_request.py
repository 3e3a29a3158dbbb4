"""The table of `degarble kv compare-dump --model` for people: the worst row of each layer and part, beside its bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KIND = "kv-request"
MAX_ROWS = 12
"""The rows with wrong entries first; a healthy cache shows a few layers only."""


def kv_request_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Plain lines; every value is looked up with care, since a report read back may hold anything."""
    layers = found.get("layers")
    rows = [row for row in layers if isinstance(row, Mapping)] if isinstance(layers, (list, tuple)) else []
    yield f"rows of {found.get('tokens', '?')} tokens beside {found.get('model', '?')}, {len(rows)} parts of layers"[
        :100
    ]
    yield f"{'layer':>7} {'part':>7} {'wrong rows':>11} {'worst row':>10} {'bound':>8}"
    rows.sort(key=lambda row: not row.get("wrong_rows"))
    for row in rows[:MAX_ROWS]:
        yield (
            f"{str(row.get('layer'))[:7]:>7} {str(row.get('part'))[:7]:>7} {str(row.get('wrong_rows'))[:11]:>11} "
            f"{_number(row.get('max_relative_l2')):>10} {_number(row.get('bound')):>8}"
        )
    if len(rows) > MAX_ROWS:
        yield f"and {len(rows) - MAX_ROWS} more"
    behind = found.get("consequences")
    if isinstance(behind, int) and behind:
        yield f"{behind} rows of higher layers differ because attention read what is wrong below them"


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"
