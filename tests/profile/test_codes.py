"""Code statistics against their slow twin, and against faults whose signature is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.formats import affine
from degarble.profile.codes import code_stats, correlation
from degarble.profile.reference import codes_reference


def quantized(
    seed: int, bits: int, group: int, *, symmetric: bool, out: int = 48, columns: int = 512
) -> tuple[Array, Array]:
    """Codes [1, out, groups, group] and zeros [1, out, groups] of a random matrix with channels of unequal size."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_t(6, (out, columns)) * rng.uniform(0.2, 2, columns) * 0.05
    codes, _, zeros = affine.quantize(weight.astype(np.float32), bits, group, symmetric=symmetric)
    return codes.reshape(1, out, -1, group), zeros.astype(np.float32)[None]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 999),
    bits=st.sampled_from([2, 3, 4, 8]),
    group=st.sampled_from([16, 32, 64]),
    symmetric=st.booleans(),
    modules=st.integers(1, 3),
)
def test_equal_to_the_reference(seed: int, bits: int, group: int, symmetric: bool, modules: int) -> None:
    parts = [quantized(seed + one, bits, group, symmetric=symmetric, out=6, columns=128) for one in range(modules)]
    codes, zeros = (np.concatenate(one) for one in zip(*parts, strict=True))
    for index, stats in enumerate(code_stats(codes, zeros, bits, None)):
        slow = codes_reference(codes[index], zeros[index], bits)
        for name, value in slow.items():
            fast = getattr(stats, name)
            assert fast is None if value is None else fast == pytest.approx(value, rel=1e-4, abs=1e-5), name
        assert stats.histogram == tuple(np.bincount(codes[index].reshape(-1), minlength=1 << bits).tolist())
        assert stats.num_groups == zeros[index].size


def test_a_batch_equals_single_modules() -> None:
    parts = [quantized(seed, 4, 64, symmetric=False) for seed in range(4)]
    codes, zeros = (np.concatenate(one) for one in zip(*parts, strict=True))
    words = codes.reshape(4, -1, 8)
    together = code_stats(codes, zeros, 4, words)
    alone = [code_stats(codes[n : n + 1], zeros[n : n + 1], 4, words[n : n + 1])[0] for n in range(4)]
    assert together == alone


def test_healthy_and_faulty_zero_points() -> None:
    codes, zeros = quantized(0, 4, 64, symmetric=False)
    (healthy,) = code_stats(codes, zeros, 4, None)
    (shifted,) = code_stats(codes, zeros + 1, 4, None)
    (rolled,) = code_stats(codes, np.roll(zeros, 1, axis=1), 4, None)
    assert abs(healthy.shift) < 0.2 and healthy.correlation is not None and healthy.correlation > 0.8
    assert -1.2 < shifted.shift < -0.8 and shifted.shift_down > 0.9
    assert rolled.correlation is not None and rolled.correlation < 0.4


def test_wrong_group_size_shows_in_rho() -> None:
    codes, zeros = quantized(0, 4, 64, symmetric=True)
    (right,) = code_stats(codes, zeros, 4, None)
    halved = codes.reshape(1, codes.shape[1], -1, 32)
    (small,) = code_stats(halved, np.repeat(zeros, 2, axis=2), 4, None)
    assert right.rho is not None and small.rho is not None and right.rho_half is not None
    assert right.rho < 0.1 and small.rho > 0.6
    assert right.rho_half == pytest.approx(small.rho)


def test_half_range_and_spill() -> None:
    codes, zeros = quantized(0, 4, 64, symmetric=False)
    (clamped,) = code_stats(np.minimum(codes, 7), zeros, 4, None)
    assert clamped.upper_half == 0.0
    words = codes.reshape(1, -1, 8)
    spilled = words.copy()
    spilled[:, :, 1:][(words[:, :, :-1] == 0)] |= 1
    (healthy,), (faulty,) = code_stats(codes, zeros, 4, words), code_stats(codes, zeros, 4, spilled)
    assert healthy.spill is not None and 0.3 < healthy.spill < 0.7
    assert faulty.spill == 1.0 and faulty.num_spill <= healthy.num_spill


def test_correlation_of_constants_is_unknown() -> None:
    assert correlation(np.ones(9), np.arange(9)) is None
    assert correlation(np.arange(9), 3 - np.arange(9)) == pytest.approx(-1)
