"""Where tensors lie: a model without memory (torch's meta device) stands in for another device, and refuses mixtures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from degarble.errors import TargetError
from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.models.load import open_model
from tests.degarble_engine.tiny_models import folder


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("is_batch_invariant", [True, False])
def test_a_step_lies_on_the_models_device(
    family: str, is_batch_invariant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefill of two requests and two decode steps; only logits come back. Experts are chosen by value, which meta lacks."""
    brought: list[tuple[int, ...]] = []

    def cpu(self: Tensor) -> Tensor:
        brought.append(tuple(self.shape))
        return torch.zeros(self.shape, dtype=self.dtype)

    model = open_model(str(folder(family)), device="meta", is_batch_invariant=is_batch_invariant)
    assert model.device.type == "meta"
    options = EngineOptions(num_gpu_blocks=32, block_size=4, is_batch_invariant=is_batch_invariant)
    engine = LLMEngine(model, options)
    monkeypatch.setattr(Tensor, "cpu", cpu)
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
    requests = [engine.add(ids, params) for ids in ([1, 2, 3, 4, 5], [7, 8, 9])]
    while engine.has_work:
        engine.step()
    assert all(request.num_outputs == 3 for request in requests)
    assert {shape[1:] for shape in brought} == {(model.vocab_size,)} and len(brought) == 3
    assert all(view.device.type == "meta" for views in engine.cache.views.values() for view in views)


def test_a_device_that_is_not_there_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("it is there")
    with pytest.raises(TargetError, match="finds no such device"):
        open_model(str(folder("llama")), device="cuda")
