"""The engine's own cache keeps KVC620 and KVC628, and what breaks them is seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from degarble.kvcache.judge_records import path_violations, poison_violations
from degarble_engine.engine.compiled_pages import CompiledPages
from degarble_engine.engine.pool import PagedKVCache
from degarble_engine.live_cache.self_check import self_check
from degarble_engine.models.load import open_model
from tests.degarble_engine.tiny_models import folder

TOKENS = [(7 * at) % 320 for at in range(21)]


@pytest.mark.parametrize("family", ["llama", pytest.param("deepseek-v3", marks=pytest.mark.slow)])
def test_a_healthy_engine_keeps_both(family: str) -> None:
    found = self_check(open_model(str(folder(family))), TOKENS, block_size=8)
    assert found.poison and found.paths
    assert not list(poison_violations(found.poison)) and not list(path_violations(found.paths))


@pytest.fixture
def _by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that gathers rows, where these faults are planted; compiled loops read the pages in place."""
    monkeypatch.setattr(CompiledPages, "of", classmethod(lambda cls, cache: None))


@pytest.mark.usefixtures("_by_torch")
def test_attention_that_reads_one_row_of_the_trash_block_lets_the_poison_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    healthy = PagedKVCache.gather

    def astray(self: PagedKVCache, layer: int, slots: object) -> dict[str, Tensor]:
        rows = healthy(self, layer, slots)  # type: ignore[arg-type]
        trash = healthy(self, layer, [0])
        return {name: torch.cat([trash[name], one[1:]]) for name, one in rows.items()}

    monkeypatch.setattr(PagedKVCache, "gather", astray)
    found = self_check(open_model(str(folder("llama"))), TOKENS, block_size=8)
    assert {one.rule for one in poison_violations(found.poison or [])} == {"KVC620"}


@pytest.mark.usefixtures("_by_torch")
def test_a_path_that_rounds_once_more_is_told_from_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = PagedKVCache.write

    def rounded(self: PagedKVCache, layer: int, rows: dict[str, Tensor], slots: object) -> None:
        if layer == 1 and next(iter(rows.values())).shape[0] == 1:
            rows = {name: one.to(torch.bfloat16).to(one.dtype) for name, one in rows.items()}
        healthy(self, layer, rows, slots)  # type: ignore[arg-type]

    monkeypatch.setattr(PagedKVCache, "write", rounded)
    found = self_check(open_model(str(folder("llama"))), TOKENS, block_size=8)
    violation = next(iter(path_violations(found.paths or [])))
    assert violation.rule == "KVC628" and violation.layer == 1
