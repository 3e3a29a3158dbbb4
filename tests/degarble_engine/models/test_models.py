"""Own definitions against transformers, on random models; in one piece, in chunks, and beside other requests."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from degarble.errors import TargetError
from degarble_engine.models.causal_lm import CausalLM
from degarble_engine.models.latent_attention import LatentAttention
from degarble_engine.models.load import families, open_model
from degarble_engine.models.plain_cache import PlainCache
from tests.degarble_engine.tiny_models import SEQUENCES, folder, tiny_batch, wanted_logits

TOLERANCE = 1e-4
YARN = {
    "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64,
    "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "mistral": ("mistral", {"sliding_window": 6}),
    "qwen2": ("qwen2", {}),
    "qwen2-window": ("qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2}),
    "qwen3": ("qwen3", {}),
    "qwen3-moe": ("qwen3-moe", {"mlp_only_layers": [1], "norm_topk_prob": True}),
    "mixtral": ("mixtral", {}),
    "deepseek-v2": ("deepseek-v2", {}),
    "deepseek-v2-lite": ("deepseek-v2", {"q_lora_rank": None, "topk_method": "greedy"}),
    "deepseek-v3": ("deepseek-v3", {"rope_parameters": YARN}),
}


@cache
def model_of(case: str) -> CausalLM:
    family, changes = CASES[case]
    return open_model(str(folder(family, **changes)))


def logits_of(model: CausalLM, chunks: list[list[tuple[int, int, int]]]) -> dict[int, torch.Tensor]:
    """Logits of SEQUENCES by steps of (sequence, start, end)."""
    cache = PlainCache()
    found: dict[int, torch.Tensor] = {}
    for step in chunks:
        ids = torch.tensor([token for which, start, end in step for token in SEQUENCES[which][start:end]])
        positions = torch.tensor([at for _, start, end in step for at in range(start, end)])
        attend = cache.begin([(str(which), end - start) for which, start, end in step])
        logits = model.logits(model.hidden(ids, positions, attend))
        sizes = [end - start for _, start, end in step]
        for (which, start, _), part in zip(step, logits.split(sizes), strict=True):
            found[which] = part if start == 0 else torch.cat([found[which], part])
    return found


WHOLE = [[(0, 0, 16), (1, 0, 5)]]


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case: str) -> None:
    family, changes = CASES[case]
    wanted = wanted_logits(folder(family, **changes), tiny_batch())
    found = logits_of(model_of(case), WHOLE)
    assert distance(torch.cat([found[0], found[1]]), wanted) < TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_chunks_and_neighbours_change_no_bit_of_dense_products(case: str) -> None:
    model = model_of(case)
    whole = logits_of(model, WHOLE)
    chunked = logits_of(model, [[(0, 0, 7)], [(0, 7, 8), (1, 0, 3)], [(1, 3, 5), (0, 8, 16)]])
    for which in (0, 1):
        assert distance(chunked[which], whole[which]) < 1e-5


@pytest.mark.parametrize("case", ["deepseek-v2", "deepseek-v3"])
def test_absorbed_and_expanded_attention_agree(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    absorbed = logits_of(model_of(case), WHOLE)
    monkeypatch.setattr(LatentAttention, "is_absorbed", False)
    expanded = logits_of(model_of(case), WHOLE)
    assert distance(expanded[0], absorbed[0]) < 1e-5
    assert not torch.equal(expanded[0], absorbed[0])


def test_a_family_without_a_definition_is_named() -> None:
    with pytest.raises(TargetError, match=r"'gemma2' has no definition in the engine, which has deepseek_v2"):
        open_model(str(folder("gemma2")))


def test_a_rope_that_depends_on_the_length_is_refused() -> None:
    changes = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}}
    with pytest.raises(TargetError, match="rope type 'dynamic'"):
        open_model(str(folder("llama", **changes)))


def test_families_are_found_by_walking() -> None:
    assert {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v3"} <= set(
        families()
    )
