"""Products that depend on nothing but their row, and codes that stay packed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from degarble_engine.models.elementwise import in_whole_vectors
from degarble_engine.models.int4_linear import MAX_ROWS, Int4Linear
from degarble_engine.models.linear import DenseLinear, filled, verify_rows
from degarble_engine.models.load import load_model
from tests.degarble_engine.models.packed_models import packed_evidence


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("outputs", "inputs"), [(8, 64), (96, 64), (64, 24), (576, 192)])
def test_rows_have_the_same_bits_in_any_batch(dtype: torch.dtype, outputs: int, inputs: int) -> None:
    assert verify_rows(DenseLinear(torch.randn(outputs, inputs).to(dtype)), inputs, dtype) is None


class _Batched(DenseLinear):
    """A product with another order of sums for few rows."""

    def product(self, rows: Tensor) -> Tensor:
        if rows.shape[0] > 16:
            return super().product(rows)
        half = rows.shape[1] // 2
        return rows[:, half:] @ self.weight[:, half:].T + rows[:, :half] @ self.weight[:, :half].T


def test_a_product_that_depends_on_the_batch_is_found() -> None:
    assert verify_rows(_Batched(torch.randn(64, 64)), 64, torch.float32) == 1


def test_rows_are_filled_with_zeros() -> None:
    rows = torch.ones(3, 2)
    assert torch.equal(filled(rows, 8)[:3], rows)
    assert filled(rows, 8).shape == (8, 2) and not filled(rows, 8)[3:].any()
    assert filled(rows, 3) is rows


@pytest.mark.parametrize("size", [1, 7, 8, 63, 64, 100])
def test_a_number_has_one_exponential_wherever_it_stands(size: int) -> None:
    values = torch.randn(size)
    whole = in_whole_vectors(torch.exp, values)
    assert torch.equal(whole, torch.cat([in_whole_vectors(torch.exp, one) for one in values.split(1)]))
    assert torch.allclose(whole, values.exp(), rtol=1e-6)


def int4_parts(outputs: int = 32, inputs: int = 128, group: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8)
    scales = torch.rand(outputs, inputs // group) * 0.01 + 0.001
    return codes, scales, torch.randint(5, 11, scales.shape).float()


@pytest.mark.parametrize("rows", [1, MAX_ROWS, MAX_ROWS + 1, 12])
def test_packed_codes_multiply_as_their_values_do(rows: int) -> None:
    torch.manual_seed(0)
    codes, scales, zeros = int4_parts()
    values = ((codes.unflatten(1, (-1, 32)) - zeros[..., None]) * scales[..., None]).flatten(1)
    packed = Int4Linear(codes, scales, zeros, dense=DenseLinear(values))
    inputs = torch.randn(rows, 128)
    wanted = inputs @ values.T
    error = float((packed(inputs) - wanted).norm() / wanted.norm())
    assert error < 0.01
    assert (error < 1e-6) == (rows > MAX_ROWS)  # the dense copy took over
    assert 0 < packed.rounding <= 2**-8


def test_a_shape_that_the_kernel_lacks_is_refused() -> None:
    codes, scales, zeros = int4_parts(outputs=24)
    with pytest.raises(ValueError, match="no such shape"):
        Int4Linear(codes, scales, zeros)


def test_int4_of_a_checkpoint_stays_packed_and_says_so() -> None:
    evidence = packed_evidence()
    _, packed = load_model(evidence, torch.bfloat16, is_batch_invariant=False, keeps_dense_beside=False)
    _, dense = load_model(evidence, torch.bfloat16)
    assert packed.num_bytes["int4-packed"] > 0 and dense.num_bytes["int4-packed"] == 0
    assert packed.num_bytes["int4-packed"] < 0.35 * dense.num_bytes["bfloat16"]
    assert 0 < packed.rounding <= 2**-8 and dense.rounding == 0
