"""Experts: each is calibrated on its own tokens, one that gets none on all, and both are counted."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from degarble_engine.quantize.calibration_stream import Caught, Chunk
from degarble_engine.quantize.expert_rounding import STARVED_TOKENS, expert_statistics, inner_of
from degarble_engine.quantize.site import DOWN, FUSED
from tests.degarble_engine.quantize.tiny_jobs import made


class Experts(nn.Module):  # type: ignore[misc]
    """Three experts, 8 wide, 4 inside."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.gate_up_proj = nn.Parameter(torch.randn(3, 8, 8, generator=generator), requires_grad=False)
        self.down_proj = nn.Parameter(torch.randn(3, 8, 4, generator=generator), requires_grad=False)


def sums(leaf: str) -> tuple[dict[int, tuple[Tensor, int, int]], Tensor, Tensor]:
    """Two chunks of 60 tokens; expert 2 gets one token of all."""
    rows = torch.randn(120, 8, generator=torch.Generator().manual_seed(1))
    chosen = torch.zeros(120, 1, dtype=torch.long)
    chosen[::2], chosen[7] = 1, 2
    chunks: list[Chunk] = [SimpleNamespace(number=number) for number in range(2)]  # type: ignore[misc]

    def catch(chunk: Chunk) -> Caught:
        part = slice(60 * chunk.number, 60 * chunk.number + 60)
        return Caught(rows[part], chosen[part])

    found: dict[int, tuple[Tensor, int, int]] = {}
    for few in expert_statistics(chunks, catch, Experts(), leaf):
        found |= {number: (one.statistics.gram, one.statistics.tokens, one.reached) for number, one in few.items()}
    return found, rows, chosen[:, 0]


def test_sums_are_of_an_experts_own_tokens() -> None:
    found, rows, chosen = sums(FUSED)
    for number in (0, 1):
        own = rows[chosen == number]
        assert torch.allclose(found[number][0], own.T @ own, rtol=1e-4, atol=1e-4)
        assert found[number][1:] == (own.shape[0], own.shape[0])
        assert own.shape[0] >= STARVED_TOKENS


def test_a_starved_expert_is_given_all_tokens_and_counted_as_it_was() -> None:
    found, rows, _ = sums(FUSED)
    assert torch.allclose(found[2][0], rows.T @ rows, rtol=1e-4, atol=1e-4)
    assert found[2][1:] == (120, 1)


def test_down_reads_what_gate_and_up_make() -> None:
    found, rows, chosen = sums(DOWN)
    module = Experts()
    inner = inner_of(module, 1, rows[chosen == 1])
    both = rows[chosen == 1] @ module.gate_up_proj[1].T
    assert torch.allclose(inner, nn.functional.silu(both[:, :4]) * both[:, 4:], rtol=1e-4, atol=1e-5)
    assert torch.allclose(found[1][0], inner.T @ inner, rtol=1e-4, atol=1e-3)


def test_the_report_counts_tokens_of_every_expert() -> None:
    _, report = made("qwen3-moe", "W4A16_ASYM", "gptq")
    assert report.comparison is not None
    rows = [row for row in report.comparison["worst"] if "experts" in row["module"]]  # type: ignore[attr-defined]
    assert rows and all(0 < row["tokens"] < 745 for row in rows)
