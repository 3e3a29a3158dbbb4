"""Conditions of a known issue, as data, against what is known about a checkpoint and its deployment.

A condition holds only if its fact is there and satisfies it: what is not known never raises an alarm.
A fact may be a set (`formats`, `skip_entries`, `out_features`); then one member is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FACTS: Mapping[str, type] = {
    "formats": str,
    "num_bits": int,
    "group_size": int,
    "symmetric": bool,
    "desc_act": bool,
    "actorder_without_groups": bool,
    "checkpoint_format": str,
    "per_module_overrides": bool,
    "mixed_precision": bool,
    "weight_only": bool,
    "zero_points_packed": bool,
    "zero_points_at_zero": bool,
    "scale_dtype": str,
    "scales_power_of_two": bool,
    "fused_on_disk": bool,
    "fused_scales_differ": bool,
    "uneven_experts": bool,
    "mixed_expert_types": bool,
    "expert_projections": str,
    "experts_packed_in_3d": bool,
    "router_quantized": bool,
    "lm_head_quantized": bool,
    "tie_flags_disagree": bool,
    "mtp": bool,
    "mtp_quantized": bool,
    "moe": bool,
    "model_type": str,
    "attention_bias": bool,
    "rope_type": str,
    "skip_entries": str,
    "relative_skip_entries": bool,
    "in_features": int,
    "out_features": int,
    "kv_cache_quantized": bool,
    "kv_scales_present": bool,
    "kv_scales_per_head": bool,
    "index_names_missing_shard": bool,
    "index_names_missing_tensor": bool,
    "tokenizer_class": str,
    "tokenizer_byte_level": bool,
    "tokenizer_pre": str,
    "dtype": str,
    "tp": int,
    "ep": int,
    "gpu": str,
}
"""Facts a condition may ask for, and the type of the value or of the members. `gpu` is `sm70`, `gfx942`, …"""

_OPERATORS: dict[str, type] = {"min": int, "max": int, "not_multiple_of": int, "prefix": str, "suffix": str}


def problem_of(fact: str, wanted: Any) -> tuple[str, str] | None:
    """What is wrong with a condition as written: `(expected, found)`, or None."""
    if fact not in FACTS:
        return f"one of {sorted(FACTS)}", fact
    if isinstance(wanted, dict):
        problems = (_operator_problem(fact, operator, operand) for operator, operand in wanted.items())
        return next(filter(None, problems), None) if wanted else ("at least one operator", "{}")
    values = wanted if isinstance(wanted, list) else [wanted]
    wrong = next((value for value in values if type(value) is not FACTS[fact]), None)
    if wrong is not None or not values:
        return FACTS[fact].__name__, repr(wrong)
    return None


def _operator_problem(fact: str, operator: str, operand: Any) -> tuple[str, str] | None:
    if operator not in _OPERATORS:
        return f"one of {sorted(_OPERATORS)}", operator
    if operator == "not_multiple_of" and isinstance(operand, int) and operand < 1:
        return "a positive multiple", repr(operand)
    if type(operand) is not _OPERATORS[operator] or FACTS[fact] is not _OPERATORS[operator]:
        return f"{operator} of {FACTS[fact].__name__} facts", repr(operand)
    return None


def holds(wanted: Any, fact: object) -> bool:
    """Whether a fact satisfies a condition: a value, a list of values to choose from, or a table of operators."""
    members = fact if isinstance(fact, set | frozenset | list | tuple) else (fact,)
    return any(_satisfies(wanted, member) for member in members if member is not None)


def _satisfies(wanted: Any, member: object) -> bool:
    if isinstance(wanted, dict):
        return all(_operate(operator, operand, member) for operator, operand in wanted.items())
    choices = wanted if isinstance(wanted, list) else [wanted]
    return any(type(choice) is type(member) and choice == member for choice in choices)


def _operate(operator: str, operand: Any, member: object) -> bool:
    if isinstance(member, str):
        return member.startswith(operand) if operator == "prefix" else operator == "suffix" and member.endswith(operand)
    if not isinstance(member, int) or isinstance(member, bool):
        return False
    if operator == "not_multiple_of":
        return member % int(operand) != 0
    return member >= operand if operator == "min" else operator == "max" and member <= operand
