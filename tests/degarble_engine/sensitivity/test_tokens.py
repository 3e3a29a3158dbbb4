"""Token sensitivity: gradients against autograd, the predictor against a rule that it can learn, the mixed walk's ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from degarble_engine.numerics.walk import final_states
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import chunks_of
from degarble_engine.sensitivity.mixed_walk import mixed_states
from degarble_engine.sensitivity.token_facts import token_features
from degarble_engine.sensitivity.token_gradient import token_gradients
from degarble_engine.sensitivity.token_predictor import NAMES, fit, spearman
from tests.degarble_engine.quantize.tiny_jobs import made, source_of
from tests.degarble_engine.tiny_models import tiny_batch


@pytest.mark.parametrize("family", ["llama", "qwen3-moe"])
def test_all_tokens_chosen_are_the_reference_and_none_the_candidate(family: str) -> None:
    batch = tiny_batch()
    reference, candidate = (
        WalkedModel.open(str(source_of(family))),
        WalkedModel.open(str(made(family, "W4A16", "rtn")[0])),
    )
    wanted, plain = final_states([reference, candidate], batch)
    whole = mixed_states(candidate, reference, batch, batch.valid)
    torch.testing.assert_close(whole, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mixed_states(candidate, reference, batch, ~batch.valid & False), plain)
    one = torch.zeros_like(batch.valid)
    one[0, 2] = True
    some = mixed_states(candidate, reference, batch, one)
    changed = (some - plain).abs().amax(1) > 1e-7
    assert not changed[:2].any() and changed[2]  # what comes before a token cannot tell


def test_gradients_of_tokens_are_one_number_each(tmp_path: Path) -> None:
    """The same for the same seed; the gradients themselves are tested in test_backward_walk.py."""
    model, batch = WalkedModel.open(str(source_of("llama"))), tiny_batch()
    found, again, other = (
        token_gradients(model, chunks_of(model, batch), tmp_path / "s", seed=seed) for seed in (0, 0, 1)
    )
    assert torch.equal(found, again) and not torch.equal(found, other)
    assert found.shape == (batch.num_tokens,) and bool((found > 0).all())


def test_the_predictor_learns_what_is_there_to_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(400, len(NAMES), generator=generator)
    true = (1.5 * features[:, 2] - features[:, 4] + 0.1 * torch.randn(400, generator=generator)).exp()
    predictor = fit(features[:200], true[:200])
    assert spearman(predictor(features[200:]), true[200:]) > 0.97
    assert predictor.weights[3] == pytest.approx(1.5, abs=0.2) and predictor.weights[5] == pytest.approx(-1, abs=0.2)


def test_ranks_share_ties() -> None:
    assert spearman(torch.tensor([1.0, 2, 2, 3]), torch.tensor([1.0, 2, 2, 3])) == pytest.approx(1)
    assert spearman(torch.tensor([1.0, 2, 3]), torch.tensor([3.0, 2, 1])) == pytest.approx(-1)


def test_features_come_from_the_distribution_before(tmp_path: Path) -> None:
    model, batch = WalkedModel.open(str(source_of("llama"))), tiny_batch()
    states = final_states([model], batch)[0]
    features = dict(zip(NAMES, token_features(model, batch, states).T, strict=True))
    whole = AutoModelForCausalLM.from_pretrained(source_of("llama"), dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logprobs = whole(batch.ids, attention_mask=batch.valid.long()).logits.log_softmax(-1)
    row, place = 1, 2
    at = int(batch.valid[0].sum()) + place
    before = logprobs[row, place - 1]
    assert float(features["entropy_before"][at]) == pytest.approx(float(-(before.exp() * before).sum()), rel=1e-3)
    assert float(features["surprisal"][at]) == pytest.approx(float(-before[batch.ids[row, place]]), rel=1e-3)
    assert float(features["is_first"].sum()) == 2 and float(features["surprisal"][0]) == 0
