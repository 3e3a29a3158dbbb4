"""What floating-point and codebook formats compare beyond `agreement.py`: kind of number, grouping, scale dtype."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from degarble.checkpoint.interface import TensorInfo
from degarble.formats.agreement import declared_against_stored, shape_contradiction
from degarble.formats.interface import PAYLOAD, Contradiction
from degarble.formats.scheme import Scheme

MODELOPT = frozenset({"modelopt", "modelopt_fp4", "modelopt_mixed"})
"""`quant_method` values that ModelOpt's exports carry."""


def disagreements(declared: Scheme | None, stored: Scheme, methods: frozenset[str]) -> list[Contradiction]:
    """Declaration against stored scheme: layout, bits, kind of number, group size, per tensor or per channel."""
    found = declared_against_stored(declared, stored, methods=methods)
    if declared is None or any(item.about in ("num_bits", "group_size") for item in found):
        return found
    if declared.type and stored.type and declared.type != stored.type:
        found.append(Contradiction(about="dtype", role=PAYLOAD, expected=declared.type, found=stored.type))
    elif _sizes_differ(declared, stored) or _extents_differ(declared, stored):
        found.append(Contradiction(about="group_size", role="scale", expected=_extent(declared), found=_extent(stored)))
    return found


def _sizes_differ(declared: Scheme, stored: Scheme) -> bool:
    return bool(declared.group_size and stored.group_size and declared.group_size != stored.group_size)


def _extents_differ(declared: Scheme, stored: Scheme) -> bool:
    single = ("tensor", "channel")
    return declared.strategy in single and stored.strategy in single and declared.strategy != stored.strategy


def _extent(scheme: Scheme) -> str:
    return str(scheme.group_size) if scheme.group_size else f"one scale per {scheme.strategy}"


def missing_roles(
    present: Collection[str], needed: Collection[str], declared: Scheme | None, static: Collection[str] = ("static",)
) -> tuple[str, ...]:
    """Needed roles that are absent; the input scale is needed where declared activations are `static`."""
    lacking = [role for role in needed if role not in present]
    if declared is not None and declared.activations in static and "input_scale" not in present:
        lacking.append("input_scale")
    return tuple(lacking)


def dtype_contradictions(parts: Mapping[str, TensorInfo], allowed: Mapping[str, frozenset[str]]) -> list[Contradiction]:
    """Parts (by role) whose dtype is none of those the format can hold."""
    return [
        shape_contradiction("dtype", role, " or ".join(sorted(dtypes)), parts[role])
        for role, dtypes in allowed.items()
        if role in parts and parts[role].dtype not in dtypes
    ]


def group_contradictions(payload_shape: tuple[int, ...], scale: TensorInfo, group: int) -> list[Contradiction]:
    """One scale for every `group` inputs of a row: rows first, then the number of groups."""
    want = [*payload_shape[:-1], -(-payload_shape[-1] // group)]
    if list(scale.shape) == want:
        return []
    rows_agree = len(scale.shape) == len(want) and list(scale.shape[:-1]) == want[:-1]
    about = "group_size" if rows_agree else "shape"
    return [shape_contradiction(about, "scale", f"{want}, one scale for {group} inputs", scale)]


def sharpened(found: list[Contradiction], more: list[Contradiction]) -> list[Contradiction]:
    """`more`, which name shapes, and what of `found` is not about the same part and property."""
    said = {(item.about, item.role) for item in more}
    return [item for item in found if (item.about, item.role) not in said] + more


def stored_group(payload_shape: tuple[int, ...], scale: TensorInfo | None, group: int) -> int | None:
    """Inputs that share a scale by the shapes: `group` where it fits, an even division else, None if neither."""
    if scale is None or not scale.shape or not payload_shape:
        return group
    groups, in_features = scale.shape[-1], payload_shape[-1]
    if scale.shape[:-1] != payload_shape[:-1]:
        return group  # transposed or of another weight: its last axis tells nothing
    if groups == -(-in_features // group):
        return group
    return in_features // groups if groups > 0 and in_features % groups == 0 else None
