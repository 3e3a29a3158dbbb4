"""Values of integer modules whose parts do not fit: refused with ValueError or KeyError, nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import module_of
from tests.formats.integer_modules import awq_parts, gemv_parts, gptq_parts, pack_parts, said

HEALTHY: dict[str, tuple[dict[str, Array], Scheme]] = {
    "gptq": (gptq_parts(16, 96, index=True), said("gptq")),
    "awq": (awq_parts(16, 96), said("awq", symmetric=False)),
    "gemv": (gemv_parts(16, 128), said("awq", symmetric=False, format="gemv")),
    "pack": (pack_parts(16, 96, symmetric=False), said("compressed-tensors", symmetric=False)),
}


def damaged(array: Array, how: str, seed: int) -> Array:
    """One part, cut, turned, flattened or filled with noise."""
    if how == "cut":
        return np.ascontiguousarray(array[: array.shape[0] // 2])
    if how == "narrow":
        return np.ascontiguousarray(array[..., : array.shape[-1] // 2])
    if how == "turned":
        return np.ascontiguousarray(array.T)
    if how == "flat":
        return array.reshape(-1)
    if how == "scalar":
        return np.asarray(array.reshape(-1)[0])
    raw = np.random.default_rng(seed).bytes(array.nbytes)
    return np.frombuffer(raw, array.dtype).reshape(array.shape)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(HEALTHY)),
    st.integers(0, 4),
    st.sampled_from(["cut", "narrow", "turned", "flat", "scalar", "noise", "gone"]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.filterwarnings("ignore:overflow")
def test_damage_is_refused(name: str, which: int, how: str, seed: int, architecture_known: bool) -> None:
    """What is given back has the shape that the headers promise."""
    parts, scheme = HEALTHY[name]
    suffix = sorted(parts)[which % len(parts)]
    changed = {key: damaged(array, how, seed) if key == suffix else array for key, array in parts.items()}
    if how == "gone":
        changed.pop(suffix)
    module = module_of(changed, scheme, (16, 96) if architecture_known else None)
    if not module.form.is_quantized:
        return
    try:
        values = module.dequantize()
    except (ValueError, KeyError):
        return
    assert module.form.shape is not None and values.shape == module.form.shape
