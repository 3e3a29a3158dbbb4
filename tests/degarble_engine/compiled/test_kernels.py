"""Compiled loops against torch; without numba there are none, and that is all."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import find_layout
from degarble_engine.compiled.kernels import kernels
from degarble_engine.engine.compiled_pages import CompiledPages
from degarble_engine.engine.paged_attend import PagedAttend, Span
from degarble_engine.engine.pool import PagedKVCache
from degarble_engine.models.attend import AttentionForm

HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")


def test_loops_are_there_if_numba_is() -> None:
    assert (kernels() is not None) == HAS_NUMBA


@pytest.fixture(scope="module")
def loops() -> Any:
    found = kernels()
    assert found is not None
    return found


@needs_numba
def test_norm_gate_and_rotation_are_those_of_torch(loops: Any) -> None:
    torch.manual_seed(0)
    rows, gain = torch.randn(5, 40), torch.randn(40)
    found = torch.empty_like(rows)
    loops.rows.norm(rows.numpy(), gain.numpy(), np.float32(1e-5), found.numpy())
    torch.testing.assert_close(found, F.rms_norm(rows, (40,), gain, 1e-5))
    gate_up, gated = torch.randn(5, 48) * 20, torch.empty(5, 24)
    loops.rows.gated(gate_up.numpy(), gated.numpy())
    torch.testing.assert_close(gated, F.silu(gate_up[:, :24]) * gate_up[:, 24:], rtol=1e-5, atol=1e-6)


@needs_numba
def test_a_nan_stays_one(loops: Any) -> None:
    rows = torch.ones(2, 16)
    rows[0, 3] = float("nan")
    found = torch.empty(2, 8)
    loops.rows.gated(rows.numpy(), found.numpy())
    assert found[0].isnan().tolist() == [place == 3 for place in range(8)] and found[1].isfinite().all()


@needs_numba
def test_entropies_are_those_of_torch_and_show_every_kind_of_damage(loops: Any) -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 5003) * torch.tensor([0.0, 0.5, 1.0, 4.0, 20.0, 100.0])[:, None]
    found = np.empty(6)
    loops.rows.entropy(logits.numpy(), found)
    expected = torch.distributions.Categorical(logits=logits.double()).entropy()
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-6)
    for place in (0, 17, 4999, 5002):
        for value in (float("nan"), float("inf"), float("-inf")):
            damaged = logits.clone()
            damaged[3, place] = value
            loops.rows.entropy(damaged.numpy(), found)
            assert np.isfinite(found).tolist() == [row != 3 for row in range(6)]


def step(cache: PagedKVCache, spans: list[Span], *, is_compiled: bool) -> PagedAttend:
    pages = CompiledPages.of(cache) if is_compiled else None
    assert (pages is not None) == is_compiled
    return PagedAttend(cache, spans, pages=pages)


@needs_numba
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_pages_are_attended_to_as_torch_does(dtype: torch.dtype, window: int | None, layout: str) -> None:
    """Two requests, one in its prompt and one that decodes, over rows strewn over the pool; and a row that fills up."""
    geometry = Geometry(num_blocks=12, block_size=8, num_layers=2, num_kv_heads=2, head_dim=16)
    order = np.random.default_rng(0).permutation(np.arange(8, 96))
    spans = [Span(6, 0, order[:20]), Span(1, 0, order[20:60])]
    torch.manual_seed(0)
    query = torch.randn(8, 6, 16)
    known, new = torch.randn(2, 60, 2, 16), torch.randn(2, 8, 2, 16)
    found = []
    for is_compiled in (True, False):
        cache = PagedKVCache(find_layout(layout), geometry, dtype=dtype)
        cache.write(1, {"k": known[0], "v": known[1]}, order[:60])
        attend = step(cache, spans, is_compiled=is_compiled)
        form = AttentionForm(scale=0.25, window=window)
        found.append(attend(1, query, {"k": new[0], "v": new[1]}, form))
        assert torch.equal(cache.gather(1, order[14:20])["k"], new[0, :6].to(dtype))
        assert not found[-1][7].any()
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@needs_numba
def test_a_poisoned_row_is_felt_where_it_is_seen_and_nowhere_else() -> None:
    geometry = Geometry(num_blocks=8, block_size=8, num_layers=1, num_kv_heads=1, head_dim=16)
    cache = PagedKVCache(find_layout("NHD"), geometry)
    cache.fill_unused([], float("nan"))
    slots = np.arange(8, 28)
    cache.write(0, {"k": torch.randn(20, 1, 16), "v": torch.randn(20, 1, 16)}, slots)
    cache.views["v"][0][2, 1] = float("nan")  # position 9
    attend = step(cache, [Span(14, 0, slots)], is_compiled=True)
    rows = {name: cache.gather(0, slots[6:])[name] for name in "kv"}
    found = attend(0, torch.randn(14, 2, 16), rows, AttentionForm(scale=0.25))
    assert found.isfinite().all(dim=-1).all(dim=-1).tolist() == [True] * 3 + [False] * 11
