"""The walk against transformers' own forward, on random models of nine families and on a quantised file."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import pytest
import torch

from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.errors import TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.formats import affine, packing
from degarble.target import open_target
from degarble_engine.numerics.walk import LayerWalk
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.tiny_models import FAMILIES, folder, tiny_batch, wanted_logits

TOLERANCE = 1e-4


def logits_of(model: WalkedModel) -> torch.Tensor:
    batch = tiny_batch()
    walk = LayerWalk([model], batch)
    for _ in walk:
        pass
    hidden = walk.hidden[0][batch.valid]
    return torch.cat([model.logits(hidden, rows) for rows in model.head_blocks()], -1)


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str) -> None:
    path = folder(family)
    assert distance(logits_of(WalkedModel.open(str(path))), wanted_logits(path, tiny_batch())) < TOLERANCE


def test_the_head_in_blocks_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder("gemma2")
    monkeypatch.setattr("degarble_engine.numerics.walked_model.HEAD_BLOCK_BYTES", 4 * 64 * 7)
    model = WalkedModel.open(str(path))
    assert len(list(model.head_blocks())) == 46
    assert distance(logits_of(model), wanted_logits(path, tiny_batch())) < TOLERANCE


def quantised(source: Path, out: Path, form: str) -> None:
    """compressed-tensors, symmetric, as transformers itself can load it: INT4 packed in groups of 32, or INT8 or FP8 by row."""
    work = Workspace(open_target(source))
    for module in Evidence(open_target(source), Settings()).get("modules").linears():
        if module.kind != "linear" or module.payload is None:
            continue
        file = module.payload.file
        work.drop(module.payload.name)
        for suffix, array in parts_of(np.array(module.dequantize()), form).items():
            work.add(file, f"{module.name}.{suffix}", array)
    label, weights = COMPRESSED[form]
    work.json("config.json")["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": label,
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "format": label,
                "weights": {"symmetric": True, "dynamic": False, **weights},
            }
        },
        "ignore": ["lm_head"],
    }
    work.save(out)


COMPRESSED = {
    "int4": ("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}),
    "int8": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
    "fp8": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
}


def parts_of(values: Array, form: str) -> dict[str, Array]:
    """Stored parts of one weight."""
    if form == "int4":
        codes, scales, _ = affine.quantize(values, 4, 32, symmetric=True, scale_dtype=np.float32)
        shape = np.array(values.shape, np.int64)
        return {"weight_packed": packing.pack_words(codes, 4), "weight_scale": scales, "weight_shape": shape}
    largest = np.abs(values).max(1, keepdims=True)
    if form == "int8":
        scales = (largest / 127).astype(np.float32)
        return {"weight": np.clip(np.round(values / scales), -128, 127).astype(np.int8), "weight_scale": scales}
    scales = (largest / 448).astype(np.float32)
    return {"weight": (values / scales).astype(ml_dtypes.float8_e4m3fn), "weight_scale": scales}


@pytest.mark.parametrize(("form", "least"), [("int4", 0.01), ("int8", 1e-3), ("fp8", 1e-3)])
def test_a_quantised_file_runs_as_transformers_runs_it(form: str, least: float, tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors")
    path = tmp_path / form
    quantised(folder("llama"), path, form)
    found = logits_of(WalkedModel.open(str(path)))
    assert distance(found, logits_of(WalkedModel.open(str(folder("llama"))))) > least
    assert distance(found, wanted_logits(path, tiny_batch())) < TOLERANCE


def test_only_one_layer_has_weights() -> None:
    model = WalkedModel.open(str(folder("llama", intermediate_size=1536)))
    walk = LayerWalk([model], tiny_batch())
    for step in walk:
        loaded = [
            index
            for index, layer in enumerate(model.skeleton.layers)
            if layer.mlp.down_proj.weight.device.type != "meta"
        ]
        assert loaded == [step.index]


def test_taps_have_valid_tokens_of_everything() -> None:
    model = WalkedModel.open(str(folder("qwen3-moe")))
    batch = tiny_batch()
    step = next(iter(LayerWalk([model], batch)))
    taps = step.runs[0].taps
    assert taps.inputs["self_attn.q_proj"].shape == (batch.num_tokens, 64)
    assert taps.inputs["self_attn.q_proj"] is taps.inputs["self_attn.k_proj"]
    assert taps.routers["mlp.gate"].experts.shape == (batch.num_tokens, 2)
    assert taps.experts["mlp.experts"].hidden.shape == (batch.num_tokens, 64)
    tap = taps.attention["self_attn"]
    assert tap.logits().shape == (2, 4, 16, 16)
    attention = (tap.logits() * tap.scaling + tap.mask).softmax(-1)
    output = attention @ tap.value.repeat_interleave(2, 1)
    assert torch.allclose(output.transpose(1, 2), tap.output, atol=1e-5)


class Stopped(Exception):
    """Stands for Ctrl-C."""


def test_a_walk_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = LayerWalk([WalkedModel.open(str(folder("llama")))], tiny_batch())
    for step in whole:
        whole.note({"layer": step.index})
    taken: list[int] = []

    def broken(done: int, total: int) -> None:
        if done == 2:
            raise Stopped

    walk = LayerWalk([WalkedModel.open(str(folder("llama")))], tiny_batch(), tmp_path, broken)
    with pytest.raises(Stopped):
        for step in walk:
            walk.note({"layer": step.index})
    again = LayerWalk([WalkedModel.open(str(folder("llama")))], tiny_batch(), tmp_path)
    for step in again:
        taken.append(step.index)
        again.note({"layer": step.index})
    assert taken == [2, 3]
    assert again.notes == whole.notes == {index: {"layer": index} for index in range(4)}
    assert torch.equal(again.hidden[0], whole.hidden[0])


def test_a_state_of_another_walk_is_refused(tmp_path: Path) -> None:
    walk = LayerWalk([WalkedModel.open(str(folder("llama")))], tiny_batch(), tmp_path)
    for _ in walk:
        pass
    with pytest.raises(UsageError, match="of other models"):
        next(iter(LayerWalk([WalkedModel.open(str(folder("qwen2")))], tiny_batch(), tmp_path)))
    (tmp_path / "walk.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(UsageError, match="not the state of a walk"):
        next(iter(LayerWalk([WalkedModel.open(str(folder("llama")))], tiny_batch(), tmp_path)))


def test_an_edit_changes_one_weight_only() -> None:
    model = WalkedModel.open(str(folder("llama")))
    name = "model.layers.2.mlp.up_proj.weight"
    variant = model.counterfactual(lambda one, values: values * 2 if one == name else values)
    batch = tiny_batch()
    walk = LayerWalk([model, variant], batch)
    errors = [float((step.runs[0].output - step.runs[1].output).abs().max()) for step in walk]
    assert errors[:2] == [0.0, 0.0] and errors[2] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "no-such-thing"}, "model_type 'no-such-thing'"),
        ({"hidden_size": 48}, "expected shape"),
        ({"auto_map": {"AutoModelForCausalLM": "evil.py--Evil"}, "model_type": "evil"}, "model_type 'evil'"),
        ({"num_hidden_layers": 6}, "found none in the checkpoint"),
    ],
)
def test_what_cannot_run_says_why(change: dict[str, object], message: str) -> None:
    work = Workspace(open_target(folder("llama")))
    values = msgspec.json.decode((folder("llama") / "config.json").read_bytes())
    work.write("config.json", msgspec.json.encode(values | change))
    with pytest.raises(TargetError, match=message):
        logits_of(WalkedModel(Evidence(work.source(), Settings())))
