"""Gradients layer by layer against autograd through the whole model of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import chunks_of
from degarble_engine.sensitivity.backward_walk import BackwardWalk
from tests.degarble_engine.quantize.tiny_jobs import source_of
from tests.degarble_engine.tiny_models import tiny_batch

PATHS = ("self_attn.o_proj", "mlp.down_proj")


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_gradients_of_the_whole_model(family: str, tmp_path: Path) -> None:
    model, batch = WalkedModel.open(str(source_of(family))), tiny_batch()
    walk = BackwardWalk(
        model=model, chunks=chunks_of(model, batch), scratch=tmp_path / "scratch", paths=lambda *_: PATHS
    )
    drawn: list[torch.Tensor] = []
    draw = BackwardWalk._drawn

    def noting(self: BackwardWalk, *arguments: object) -> tuple[torch.Tensor, torch.Tensor]:
        found = draw(self, *arguments)  # type: ignore[arg-type]
        drawn.append(found[0])
        return found

    BackwardWalk._drawn = noting  # type: ignore[assignment, method-assign]
    try:
        own = {
            (one.index, path): call.gradient[one.chunk.valid]
            for layer in walk
            for one in layer
            for path, call in one.calls.items()
        }
    finally:
        BackwardWalk._drawn = draw  # type: ignore[method-assign]
    assert not (tmp_path / "scratch").exists()

    whole = AutoModelForCausalLM.from_pretrained(source_of(family), attn_implementation="eager", dtype=torch.float32)
    outputs: dict[tuple[int, str], torch.Tensor] = {}
    for index, layer in enumerate(whole.model.layers):
        for path in PATHS:

            def keep(_: object, __: object, output: torch.Tensor, at: tuple[int, str] = (index, path)) -> None:
                output.retain_grad()
                outputs[at] = output

            layer.get_submodule(path).register_forward_hook(keep)
    logits = whole(batch.ids, attention_mask=batch.valid.long()).logits[batch.valid]
    (-logits.log_softmax(-1).gather(1, drawn[0][:, None]).sum()).backward()
    assert set(own) == set(outputs) and len(drawn) == 1
    for at, output in outputs.items():
        assert output.grad is not None
        torch.testing.assert_close(own[at], output.grad[batch.valid], rtol=2e-4, atol=2e-6)


def test_labels_are_drawn_from_the_model(tmp_path: Path) -> None:
    """Many draws at one position have the shares of its distribution."""
    model = WalkedModel.open(str(source_of("llama")))
    chunk = chunks_of(model, tiny_batch())[0]
    states = torch.randn(1, model.hidden_size, generator=torch.Generator().manual_seed(0)).expand(4000, -1) * 3
    walk = BackwardWalk(model=model, chunks=[chunk], scratch=tmp_path, paths=lambda *_: ())
    labels, total = walk._drawn(chunk, states)
    logits = torch.cat([model.logits(states[:1], rows) for rows in model.head_blocks()], 1)
    shares = (logits - total[:1, None]).exp()[0]
    assert float(shares.sum()) == pytest.approx(1, abs=1e-4)
    counts = torch.bincount(labels, minlength=len(shares)) / len(labels)
    assert float((counts - shares).abs().sum()) / 2 < 0.12
