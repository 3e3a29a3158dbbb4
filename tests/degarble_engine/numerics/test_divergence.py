"""KL by blocks against the plain formula."""

from __future__ import annotations

import pytest
import torch

from degarble_engine.numerics.divergence import divergence
from degarble_engine.numerics.walk import LayerWalk
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.tiny_models import folder, tiny_batch


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_blocks_give_what_the_whole_vocabulary_gives(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("degarble_engine.numerics.walked_model.HEAD_BLOCK_BYTES", 4 * 64 * 50)
    one = WalkedModel.open(str(folder(family)))
    two = one.counterfactual(lambda name, values: values * 1.3 if name.endswith("q_proj.weight") else values)
    batch = tiny_batch()
    walk = LayerWalk([one, two], batch)
    for _ in walk:
        pass
    states = [hidden[batch.valid] for hidden in walk.hidden]
    found = divergence(one, states[0], two, states[1])
    whole = [
        torch.cat([model.logits(hidden, rows) for rows in model.head_blocks()], -1).double().log_softmax(-1)
        for model, hidden in zip((one, two), states, strict=True)
    ]
    wanted = (whole[0].exp() * (whole[0] - whole[1])).sum(-1)
    assert torch.allclose(found.by_token.double(), wanted, rtol=1e-3, atol=1e-6)
    assert torch.equal(found.reference_top, whole[0].argmax(-1))
    assert torch.equal(found.agrees, whole[0].argmax(-1) == whole[1].argmax(-1))
    assert divergence(one, states[0], one, states[0]).kl == 0.0
