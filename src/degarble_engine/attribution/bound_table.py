"""`compare --bounds`: modules of one role in a row, each bound beside the error, and which of them say nothing."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from degarble_engine.attribution.bound_measures import BoundMeasures
from degarble_engine.attribution.propagation import Propagation
from degarble_engine.attribution.record import LayerRecord
from degarble_engine.numerics.error_bounds import expected_coverage
from degarble_engine.numerics.origin_formula import CLAIMED_SHARE
from degarble_engine.numerics.walked_model import WalkedModel

ROLES = {
    "QKV": ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
            "kv_b_proj", "c_attn", "Wqkv"),
    "O": ("o_proj", "out_proj", "dense"),
    "FFN in": ("gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "fc1"),
    "FFN out": ("down_proj", "w2", "fc2"),
    "router": ("gate", "router"),
}  # fmt: skip
"""Role in a decoder layer -> last part of a module's name."""
ALL = "all"
VACUOUS = 1.0
"""Rms of a bound over rms of the output, from which it does not even say that the error is smaller than the output."""
MAX_MODULES = 20_000


def bounds_of(records: Sequence[LayerRecord], candidate: WalkedModel, spread: Propagation | None) -> dict[str, object]:
    """Plain values for the report."""
    found = [(record, one) for record in records for one in record.bounds]
    by_role: defaultdict[str, list[BoundMeasures]] = defaultdict(list)
    for _, one in found:
        by_role[role_of(one.kind)].append(one)
    rows = [_row(role, members) for role, members in by_role.items()]
    rows += [_row(ALL, [one for _, one in found])] if len(rows) > 1 else []
    reasons = Counter(one.not_judged for _, one in found if one.not_judged is not None)
    return {
        "expected_coverage": [expected_coverage(times) for times in (1.0, 2.0, 3.0)],
        "claimed_share": CLAIMED_SHARE,
        "table": rows,
        "not_judged": dict(reasons),
        "modules": [_module(record, one, candidate) for record, one in found][:MAX_MODULES],
        "propagation": None if spread is None else _plain(asdict(spread)),
    }


def role_of(kind: str) -> str:
    """Of a module by its name; experts apart, and the name itself where it is none of the usual ones."""
    leaf = kind.rpartition(".")[2]
    role = next((role for role, leaves in ROLES.items() if leaf in leaves), leaf)
    return f"expert {role}" if "*" in kind.split(".") else role


def _row(role: str, members: Sequence[BoundMeasures]) -> dict[str, Any]:
    judged = [one for one in members if one.z is not None]
    row: dict[str, Any] = {
        "role": role,
        "modules": len(members),
        "judged": len(judged),
        "error": _mean([one.error for one in members]),
        "predicted": _mean([one.predicted for one in judged if one.predicted is not None]),
        "coverage": [_mean([one.coverage[at] for one in judged]) for at in range(3)] if judged else None,
        "z": _range([one.z for one in judged if one.z is not None]),
        "row_z": _number(max((one.row_z for one in judged if one.row_z is not None), default=None)),
    }
    names = list(dict.fromkeys(name for one in judged for name in one.bounds))
    row["bounds"] = {name: _bound([one for one in judged if name in one.bounds], name) for name in names}
    return row


def _bound(members: Sequence[BoundMeasures], name: str) -> dict[str, Any]:
    kept = [one.bounds[name] for one in members]
    relative = statistics.median(one.relative for one in kept)
    return {
        "relative": _number(relative),
        "tightness": _number(statistics.median(one.tightness for one in kept)),
        "inside": _mean([one.inside for one in kept]),
        "vacuous": relative > VACUOUS,
    }


def _module(record: LayerRecord, one: BoundMeasures, candidate: WalkedModel) -> dict[str, Any]:
    return {
        "module": f"{candidate.skeleton.layer_name(record.index)}.{one.name}",
        "role": role_of(one.kind),
        "not_judged": one.not_judged,
        "error": _number(one.error),
        "predicted": _number(one.predicted),
        "coverage": [_number(share) for share in one.coverage],
        "z": _number(one.z),
        "row_z": _number(one.row_z),
        "row": one.row_z_at if one.row_z is not None else None,
        "bounds": {
            name: {"relative": _number(bound.relative), "inside": _number(bound.inside)}
            for name, bound in one.bounds.items()
        },
    }


def _mean(values: Sequence[float]) -> float | None:
    return _number(statistics.fmean(values)) if values else None


def _range(values: Sequence[float]) -> list[float | None] | None:
    """Least, median, greatest."""
    return [_number(one) for one in (min(values), statistics.median(values), max(values))] if values else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
