"""Weights in panels: the same numbers, the same bits in any batch, and no rounding that was not allowed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from degarble_engine.models.linear import verify_rows
from degarble_engine.models.load import load_as_stored
from degarble_engine.models.panels import HalfPanels, LibraryPanels, PanelMaker
from tests.degarble_engine.models.packed_models import packed_evidence


def weight_of(outputs: int = 96, inputs: int = 64) -> Tensor:
    torch.manual_seed(3)
    return (torch.randn(outputs, inputs) * 0.05).bfloat16().float()


def maker(held_as: torch.dtype, dtype: torch.dtype = torch.float32, *, is_batch_invariant: bool = True) -> PanelMaker:
    return PanelMaker(dtype, held_as, is_batch_invariant=is_batch_invariant)


@pytest.mark.parametrize("kind", [HalfPanels, LibraryPanels])
@pytest.mark.parametrize(("outputs", "inputs"), [(8, 64), (33, 17), (96, 576), (576, 1536)])
def test_rows_have_the_same_bits_in_any_batch(
    kind: type[HalfPanels | LibraryPanels], outputs: int, inputs: int
) -> None:
    weight, rows = weight_of(outputs, inputs), torch.randn(7, inputs)
    panels = kind(weight, torch.ones(outputs))
    panels.row_multiple = panels.row_multiples[0]
    assert torch.allclose(panels(rows), F.linear(rows, weight) + 1, atol=1e-5)
    assert verify_rows(panels, inputs, torch.float32) is None


def test_bf16_weights_are_exact_in_fp16_and_take_half() -> None:
    own = maker(torch.bfloat16)
    panels = own.make(weight_of(), None)
    assert panels is not None and panels.kind == "fp16-panels" and own.rounding == 0
    assert panels.num_bytes == 96 * 64 * 2


def test_what_fp16_cannot_hold_stays_in_fp32() -> None:
    spoiled = weight_of()
    spoiled[0, 0] = 1e6
    for held_as, weight in (
        (torch.bfloat16, spoiled),
        (torch.bfloat16, weight_of().fill_(float("nan"))),
        (torch.float32, torch.randn(96, 64)),
    ):
        panels = maker(held_as).make(weight, None)
        assert panels is not None and panels.kind == "float32-panels"
        torch.testing.assert_close(panels(torch.eye(64)), weight.T, equal_nan=True)


def test_an_order_that_depends_on_the_batch_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("degarble_engine.models.panels.verify_rows", lambda *_: 1)
    assert maker(torch.bfloat16).make(weight_of(), None) is None
    free = maker(torch.bfloat16, is_batch_invariant=False).make(weight_of(), None)
    assert free is not None and free.row_multiple == 1


def test_an_operator_that_is_missing_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(HalfPanels, "__init__", refuse)
    panels = maker(torch.bfloat16).make(weight_of(), None)
    assert isinstance(panels, LibraryPanels)
    monkeypatch.setattr(LibraryPanels, "__init__", refuse)
    assert maker(torch.bfloat16).make(weight_of(), None) is None


def test_a_model_as_stored_says_how_its_weights_are_kept() -> None:
    model, store = load_as_stored(packed_evidence(), torch.bfloat16)
    if model.dtype == torch.bfloat16:
        pytest.skip("a processor with bf16 units computes in bf16")
    assert store.num_bytes["fp16-panels"] > 0 and not store.num_bytes["float32"]
    assert 0 < store.rounding < 2**-8
    assert (model.dtype, model.cache_dtype) == (torch.float32, torch.bfloat16)
    assert model.row_multiple == 3
