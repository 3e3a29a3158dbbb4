"""A quantised folder from the outside: what is in it, that others load it, that a killed job ends in the same bytes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from degarble.api import check
from degarble.checkpoint.workspace import Workspace
from degarble.errors import TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.profile.code_groups import values_of
from degarble.report.interface import Status
from degarble.report.quantize import quantize_lines
from degarble.report.text import render
from degarble.target import open_target
from degarble_engine.numerics.divergence import divergence
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walk import final_states
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize import layer_rounding, smoke, verification
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe
from degarble_engine.quantize.site import sites_of
from tests.degarble_engine.quantize.tiny_jobs import calibration_file, made, recipe_of, source_of
from tests.degarble_engine.tiny_models import tiny_batch, wanted_logits

FAMILIES = ("llama", "qwen2", "qwen3-moe")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def logits_of(folder: Path, batch: TokenBatch) -> torch.Tensor:
    model = WalkedModel.open(str(folder))
    return model.logits(final_states([model], batch)[0], (0, model.vocab_size))


@pytest.mark.parametrize(("family", "method"), [(family, "gptq") for family in FAMILIES] + [("llama", "rtn")])
def test_every_linear_is_quantised_and_the_check_is_clean(family: str, method: str) -> None:
    out, report = made(family, "W4A16_ASYM", method)
    assert report.status is Status.OK and check(out).status is Status.OK
    modules = Evidence(open_target(out), Settings()).get("modules")
    linears = [one for one in modules.values() if one.kind == "linear" and one.layer is not None]
    assert linears and all(one.form.is_quantized for one in linears)
    assert not any(one.form.is_quantized for one in modules.values() if one.kind in ("router", "head", "embedding"))
    assert report.comparison is not None and report.comparison["matrices"] == len(linears)
    ran = report.comparison["smoke"]
    assert ran["tokens"] == 96 and 0 < ran["kl_divergence"] < 1  # type: ignore[index]
    assert 5.0 < float(str(report.comparison["bits"])) < 5.3  # 4, scales of fp32 and zeros in groups of 32, shapes


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3-moe", marks=pytest.mark.slow)])
def test_calibration_comes_nearer_to_the_reference(family: str) -> None:
    batch = tiny_batch()
    reference = WalkedModel.open(str(source_of(family)))
    states = final_states([reference], batch)[0]
    kl = {}
    for method in ("rtn", "gptq"):
        candidate = WalkedModel.open(str(made(family, "W3A16", method)[0]))
        kl[method] = divergence(reference, states, candidate, final_states([candidate], batch)[0]).kl
    assert kl["gptq"] < kl["rtn"]


@pytest.mark.parametrize("scheme", ["W8A8", "FP8", "FP8_BLOCK", pytest.param("W8A16", marks=pytest.mark.slow)])
def test_other_schemes(scheme: str) -> None:
    out, report = made("llama", scheme, "gptq" if scheme != "FP8_BLOCK" else "rtn")
    assert report.status is Status.OK
    plain = logits_of(source_of("llama"), tiny_batch())
    assert float((logits_of(out, tiny_batch()) - plain).norm() / plain.norm()) < 0.1


@pytest.mark.engine
@pytest.mark.parametrize("scheme", ["W4A16", "W8A8", "FP8"])
def test_transformers_loads_it_and_computes_the_same(scheme: str) -> None:
    """Integers and floats for weights and activations are not compared in logits: transformers rounds inputs as well."""
    out, _ = made("llama", scheme, "rtn")
    batch = tiny_batch()
    wanted, found = wanted_logits(out, batch), logits_of(out, batch)
    bound = 2e-4 if scheme == "W4A16" else 0.1
    assert float((wanted - found).norm() / found.norm()) < bound


def test_what_lies_beside_the_weights() -> None:
    out, report = made("qwen3-moe", "W4A16_ASYM", "gptq")
    told = json.loads((out / "quantization.json").read_text())
    assert told["recipe"]["scheme"] == "W4A16_ASYM" and told["calibration"]["sequences"] == 24
    assert len(told["matrices"]) == report.comparison["matrices"]  # type: ignore[index]
    card = (out / "README.md").read_text()
    assert card.startswith("---\n") and "- compressed-tensors" in card and "base_model" not in card
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert config["config_groups"]["group_0"]["weights"]["actorder"] == "static"
    assert {one for one in config["ignore"] if "gate" in one} == {f"model.layers.{n}.mlp.gate" for n in range(2)}
    assert str(source_of("qwen3-moe")) not in (out / "quantization.json").read_text()
    assert any("calibrat" in line or "bits a weight" in line for line in quantize_lines(report.comparison or {}))
    assert "W4A16_ASYM by gptq" in render(report)


def test_base_model_and_licence_go_into_the_card(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(source_of("llama"), model)
    (model / "README.md").write_text("---\nlicense: apache-2.0\nlanguage:\n- en\ntags: [x]\n---\n# It\n")
    quantize(str(model), str(tmp_path / "out"), Recipe(method="rtn", group_size=32, base_model="org/name"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "license: apache-2.0\nbase_model: org/name\nbase_model_relation: quantized\n" in card
    assert check(tmp_path / "out").status is Status.OK


def test_an_interrupted_job_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    out, layers = tmp_path / "out", []

    def stop(done: int, _: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    recipe = recipe_of("W4A16_ASYM", "gptq")
    with pytest.raises(KeyboardInterrupt):
        quantize(str(source_of("llama")), str(out), recipe, stop)
    assert not out.exists() and (tmp_path / ".out.quantizing" / "layer-00000.safetensors").exists()
    with pytest.raises(UsageError, match="another recipe"):
        quantize(str(source_of("llama")), str(out), recipe_of("W3A16", "gptq"))
    quantize(str(source_of("llama")), str(out), recipe, lambda done, _: layers.append(done))
    assert layers == [1, 2] and not (tmp_path / ".out.quantizing").exists()
    assert files_of(out) == files_of(made("llama", "W4A16_ASYM", "gptq")[0])


SCRIPT = """
import os, signal, sys
import msgspec
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe

def watch(done, total):
    if done == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

quantize(sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3], type=Recipe), watch)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("family", "layer"), [("llama", 1), ("qwen3-moe", 2)])
def test_a_killed_job_goes_on_to_the_same_bytes(family: str, layer: int, tmp_path: Path) -> None:
    recipe = recipe_of("W4A16_ASYM", "gptq")
    arguments = [str(source_of(family)), str(tmp_path / "out"), msgspec.json.encode(recipe).decode()]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments, str(layer)], check=False)
    assert done.returncode == -signal.SIGKILL and not (tmp_path / "out").exists()
    whole = subprocess.run([sys.executable, "-c", SCRIPT, *arguments, "-1"], check=False)
    assert whole.returncode == 0
    other = [arguments[0], str(tmp_path / "undisturbed"), arguments[2]]
    assert subprocess.run([sys.executable, "-c", SCRIPT, *other, "-1"], check=False).returncode == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "undisturbed")


def test_shards_and_their_index(tmp_path: Path) -> None:
    """Tensors go where the plain ones were, the index counts their bytes, and what is not touched stays."""
    work = Workspace(open_target(source_of("llama")))
    shard = work.shard("model.safetensors")
    names = sorted(shard.tensors)
    work.write("model.safetensors.index.json", b'{"metadata": {"total_size": 1}, "weight_map": {}}')
    mapping = work.json("model.safetensors.index.json")["weight_map"]
    mapping.update(dict.fromkeys(names, "model.safetensors"))
    work.save(tmp_path / "model")
    quantize(str(tmp_path / "model"), str(tmp_path / "out"), Recipe(method="rtn", group_size=32))
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    header = Evidence(open_target(tmp_path / "out"), Settings()).get("tensors")
    assert index["metadata"]["total_size"] == sum(info.nbytes for info in header.values())
    assert set(index["weight_map"]) == set(header)
    before = Evidence(open_target(tmp_path / "model"), Settings()).get("modules")
    after = Evidence(open_target(tmp_path / "out"), Settings()).get("modules")
    for name in ("model.embed_tokens", "model.norm", "model.layers.1.input_layernorm"):
        assert np.array_equal(before[name].array("payload"), after[name].array("payload"))


def test_ignored_modules_stay_plain_and_are_listed(tmp_path: Path) -> None:
    ignore = ("re:.*down_proj", "model.layers.0.self_attn.o_proj")
    report = quantize(
        str(source_of("llama")), str(tmp_path / "out"), Recipe(method="rtn", group_size=32, ignore=ignore)
    )
    plain = {"model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj", "model.layers.0.self_attn.o_proj"}
    assert report.status is Status.OK and report.comparison is not None
    assert plain < set(report.comparison["left_plain"])  # type: ignore[call-overload]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert plain < set(config["quantization_config"]["ignore"])


def test_a_result_that_is_not_what_was_chosen_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = values_of
    monkeypatch.setattr(verification, "values_of", lambda module: honest(module) + np.float32(1e-6))
    with pytest.raises(TargetError, match="other values than were chosen"):
        quantize(str(source_of("llama")), str(tmp_path / "out"), Recipe(method="rtn", group_size=32))
    assert [one.name for one in tmp_path.iterdir()] == [".out.quantizing"]


def test_a_result_that_gives_no_numbers_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "divergence", lambda *_: SimpleNamespace(kl=float("inf"), top1_agreement=0.0))
    with pytest.raises(TargetError, match="logits are not finite"):
        quantize(str(source_of("llama")), str(tmp_path / "out"), Recipe(method="rtn", group_size=32))
    assert not (tmp_path / "out").exists()


def test_a_matrix_that_no_layer_runs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was chosen by the headers and never met in the running layers would be declared and stay plain."""
    monkeypatch.setattr(layer_rounding, "sites_of", lambda *arguments: dict(list(sites_of(*arguments).items())[1:]))
    with pytest.raises(TargetError, match="q_proj and 1 more were to be quantised, and no layer has them"):
        quantize(str(source_of("llama")), str(tmp_path / "out"), Recipe(method="rtn", group_size=32))


def test_half_of_a_fused_group_is_refused_by_the_check(tmp_path: Path) -> None:
    recipe = Recipe(method="rtn", group_size=32, ignore=("model.layers.0.self_attn.v_proj",))
    with pytest.raises(TargetError, match="QNT108"):
        quantize(str(source_of("llama")), str(tmp_path / "out"), recipe)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 48}, "no multiple of groups of 48 .of .*64, 32, 16 they are.; give another --group-size"),
        ({"scheme": "W4B16"}, "--scheme"),
        ({"method": "magic"}, "--method 'magic': .*gptq, rtn"),
        ({"export": "onnx"}, "--export 'onnx': awq, compressed-tensors"),
        ({"polish": 1}, "--polish: --method rtn polishes nothing"),
        ({"method": "gptq", "polish": 9}, "--polish: expected 0 to 8, found 9"),
        ({"method": "auto", "polish": -1}, "--polish: expected 0 to 8, found -1"),
        ({"ignore": ("re:(",)}, "--ignore 're:\\(': not a pattern"),
        ({"ignore": ("re:.*",)}, "no linear that could be quantised"),
        ({"base_model": "../x"}, "--base-model"),
        ({"method": "gptq", "calibration": "/nowhere.txt"}, "--calibration /nowhere.txt: No such file"),
        ({"method": "gptq", "calibration": "builtin"}, "texts need a tokenizer.json"),
        ({"method": "gptq", "calibration_samples": 0}, "--calibration-samples 0: from 1"),
        ({"method": "gptq", "calibration_tokens": 10**9}, "--calibration-tokens"),
    ],
)
def test_what_makes_no_sense_is_said(change: dict[str, object], message: str, tmp_path: Path) -> None:
    recipe = msgspec.structs.replace(Recipe(group_size=32, calibration=calibration_file()), **change)
    with pytest.raises((UsageError, TargetError), match=message):
        quantize(str(source_of("llama")), str(tmp_path / "out"), recipe)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"ids": [1, "x"]}', "expected `text`, `prompt` or `ids`, found .'ids'."),
        ('{"ids": [1, -1]}', "expected `text`"),
        ('{"ids": [1, 320]}', "token id 320, but the model has 320"),
        ("{", "expected JSON"),
        ('{"ids": []}', "expected `text`"),
        ("", "no tokens to run"),
    ],
)
def test_calibration_files_that_cannot_be_used(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(line + "\n")
    recipe = Recipe(method="gptq", group_size=32, calibration=str(tmp_path / "text"))
    with pytest.raises(UsageError, match=message):
        quantize(str(source_of("llama")), str(tmp_path / "out"), recipe)


def test_a_quantised_model_is_not_quantised_again(tmp_path: Path) -> None:
    out, _ = made("llama", "W4A16_ASYM", "rtn")
    with pytest.raises(TargetError, match="expected plain weights, found compressed_pack"):
        quantize(str(out), str(tmp_path / "out"), Recipe(method="rtn", group_size=32))
    with pytest.raises(UsageError, match="already exists"):
        quantize(str(source_of("llama")), str(out), Recipe(method="rtn", group_size=32))
