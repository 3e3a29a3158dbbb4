"""The numbers of `degarble compare` as a table for people: the end first, then layers, then the modules farthest off.

A report read back from a file may hold anything under `comparison`, so every number is looked up with care.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.report.bounds import bounds_lines

MAX_LAYERS = 12
"""Layers shown; those between are left out evenly."""
MAX_MODULES = 8


def comparison_lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Plain lines, none longer than 100 characters."""
    tokens, texts = comparison.get("tokens", "?"), str(comparison.get("texts", "?"))[-40:]
    yield f"compared on {tokens} tokens ({texts}), the candidate in {comparison.get('precision', '?')}"[:100]
    yield (
        f"KL divergence {_number(comparison.get('kl_divergence'))} nats (noise "
        f"{_number(comparison.get('noise_kl'))}), same first choice {_share(comparison.get('top1_agreement'))}"
    )
    swap = comparison.get("kv_swap")
    if isinstance(swap, Mapping):
        yield (
            f"its KV cache alone in {str(swap.get('form', '?'))[:24]}: KL {_number(swap.get('kl_divergence'))} nats, same first "
            f"choice {_share(swap.get('top1_agreement'))}"
        )[:100]
    layers = _rows(comparison, "layers")
    if layers:
        yield f"{'layer':>7}  {'local error':>12}  {'inherited':>10}  {'noise floor':>12}"
    for row in _spread(layers):
        yield (
            f"{_number(row.get('layer')):>7}  {_number(row.get('local_error')):>12}  "
            f"{_number(row.get('inherited_error')):>10}  {_number(row.get('noise_floor')):>12}"
        )
    modules = [row for row in _rows(comparison, "modules") if _number(row.get("sqnr_db")) != "-"]
    modules = sorted(modules, key=lambda row: row["sqnr_db"])[:MAX_MODULES]
    if modules and modules[0]["sqnr_db"] < 199:
        yield f"{'lowest SQNR, dB':>17}  {'relative':>9}  {'z':>7}  {'row z':>7}  module"
    for row in modules:
        if row["sqnr_db"] < 199:
            yield (
                f"{row['sqnr_db']:>17.1f}  {_number(row.get('relative_l2')):>9}  {_number(row.get('z')):>7}  "
                f"{_number(row.get('row_z')):>7}  {str(row.get('module', '?'))[-50:]}"
            )
    yield from bounds_lines(comparison.get("bounds"))


def _rows(comparison: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = comparison.get(key)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, (list, tuple)) else []


def _spread(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if len(rows) <= MAX_LAYERS:
        return rows
    return [rows[round(at * (len(rows) - 1) / (MAX_LAYERS - 1))] for at in range(MAX_LAYERS)]


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "-"
    return f"{value:.3g}"


def _share(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, float) else "-"
