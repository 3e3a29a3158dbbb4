"""Storing a module at a finer group size with the same values: every scale is written more than once."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient
from degarble.formats.interface import StoredModule


def can_regroup(module: StoredModule) -> bool:
    """Whether the module has integer groups with scales on an axis of their own."""
    scheme = module.form.scheme
    return (
        module.form.is_quantized
        and module.expert is None
        and scheme is not None
        and scheme.type == "int"
        and bool(scheme.group_size)
        and module.form.shape is not None
        and len(module.form.shape) == 2
        and module.part("scale") is not None
    )


def regroup(patient: Patient, module: StoredModule, factor: int) -> int:
    """Repeat scales and zero points `factor` times along the groups; returns the new group size."""
    scheme, shape = module.form.scheme, module.form.shape
    if scheme is None or shape is None or not scheme.group_size or scheme.group_size % factor:
        raise NotApplicable("the groups cannot be divided")
    size, columns = scheme.group_size // factor, shape[-1]
    groups = -(-columns // scheme.group_size)
    if groups * scheme.group_size != columns:
        raise NotApplicable("the last group is short")
    for role in ("scale", "zero_point"):
        part = module.part(role)
        if part is not None:
            stored = module.array(role)
            patient.workspace.set(part.name, np.repeat(stored, factor, axis=_axis(stored, groups, shape[0])))
    index = module.part("g_idx")
    if index is not None:
        order = module.array("g_idx")
        if bool((np.diff(order) < 0).any()):
            raise NotApplicable("the inputs are shuffled")
        patient.workspace.set(index.name, (np.arange(columns) // size).astype(order.dtype))
    return size


def _axis(stored: Array, groups: int, out_features: int) -> int:
    """The axis that counts groups; NotApplicable where both could."""
    axes = [axis for axis, length in enumerate(stored.shape) if length == groups]
    if stored.ndim != 2 or len(axes) != 1 or groups == out_features:
        raise NotApplicable("the axis of the groups cannot be told")
    return axes[0]
