"""`compare` from the outside: what it says of faults, folds, strangers and broken references; and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.cli import app
from degarble.errors import TargetError
from degarble.evidence import Evidence, Settings
from degarble.finding import Finding
from degarble.report.comparison import comparison_lines
from degarble.report.interface import Report, Status
from degarble.target import open_target
from degarble_engine import comparison
from degarble_engine.cli import compare as compare_command
from degarble_engine.comparison import Question, compare_models
from degarble_engine.kv_precision.cache_form import read_form
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.tiny_models import folder

SCHEMA = json.loads((files("degarble.data") / "report.schema.json").read_text())


class Candidate:
    """A tiny model whose weights can be changed by name."""

    def __init__(self, family: str) -> None:
        self.path = folder(family)
        self.work = Workspace(open_target(self.path))
        self.modules = Evidence(open_target(self.path), Settings()).get("modules").by_canonical

    def change(self, name: str, change: Callable[[Any], Any]) -> None:
        module = self.modules[name]
        for tensor, array in module.replace(codes=change(np.array(module.dequantize()))).items():
            self.work.set(tensor, array)

    def bias(self, name: str, change: Callable[[Any], Any]) -> None:
        module = self.modules[name]
        self.work.set(module.parts["bias"].name, change(np.array(module.array("bias"))))

    def config(self, **values: Any) -> None:
        old = msgspec.json.decode((self.path / "config.json").read_bytes())
        self.work.write("config.json", msgspec.json.encode({**old, **values}))

    def compared(self, reference: Path | None = None) -> Report:
        candidate = WalkedModel(Evidence(self.work.source(), Settings()))
        found: Report = compare_models(candidate, WalkedModel.open(str(reference or self.path)), Question())
        return found


def first(report: Report) -> Finding:
    assert report.causes, [f"{one.rule} {one.message}" for one in report.findings]
    return report.causes[0].finding


@pytest.mark.parametrize(
    ("family", "module"),
    [
        ("llama", "model.layers.2.self_attn.v_proj"),
        ("qwen2", "model.layers.1.self_attn.q_proj"),
        ("qwen3-moe", "model.layers.1.mlp.experts.2.up_proj"),
        ("mixtral", "model.layers.3.block_sparse_moe.experts.1.w2"),
        ("gemma2", "model.layers.0.mlp.down_proj"),
        ("gemma3", "model.layers.3.mlp.gate_proj"),
        ("deepseek-v3", "model.layers.2.self_attn.kv_b_proj"),
        ("deepseek-v3", "model.layers.2.mlp.shared_experts.down_proj"),
        ("qwen3-moe", "model.layers.0.mlp.gate"),
    ],
)
def test_the_guilty_tensor_is_first(family: str, module: str) -> None:
    one = Candidate(family)
    one.change(module, lambda values: values * 0.8)
    finding = first(one.compared())
    assert finding.rule in ("DIV902", "DIV903")
    assert finding.location.tensor == one.modules[module].payload.name
    assert finding.location.layer == int(module.split(".")[2])


@pytest.mark.parametrize("leaf", ["gate_up_proj", "down_proj"])
def test_an_expert_stored_the_other_way_round_is_named_by_its_number(leaf: str) -> None:
    """gpt-oss keeps the experts of a layer in one tensor, [experts, in, out], gate and up in turns, with biases."""
    one = Candidate("gpt-oss")
    name = f"model.layers.2.mlp.experts.{leaf}"
    module = one.modules[name]
    values = np.array(module.dequantize())
    values[1] *= 0.7
    one.work.set(module.payload.name, values)
    report = one.compared()
    place = first(report).location
    assert (place.expert, place.layer, place.tensor) == (1, 2, module.payload.name)
    assert place.module == f"model.layers.2.mlp.experts.1.{leaf}" and len(report.causes) == 1
    assert first(report).rule == "DIV903"


def test_three_faults_are_all_listed() -> None:
    one = Candidate("llama")
    guilty = ("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.o_proj", "model.layers.3.mlp.down_proj")
    for name in guilty:
        one.change(name, lambda values: np.roll(values, 4, 1))
    report = one.compared()
    assert {cause.finding.location.module for cause in report.causes} == set(guilty)
    damages = [cause.finding.damage for cause in report.causes if cause.finding.rule == "DIV903"]
    assert damages == sorted(damages, reverse=True)


def test_a_fold_that_everybody_knows_of_is_silent() -> None:
    one = Candidate("llama")
    scale = np.exp(np.random.default_rng(0).normal(0, 0.5, 64)).astype(np.float32)
    one.change("model.layers.1.input_layernorm", lambda gain: gain / scale)
    for leaf in ("q_proj", "k_proj", "v_proj"):
        one.change(f"model.layers.1.self_attn.{leaf}", lambda values: values * scale)
    rows = np.exp(np.random.default_rng(1).normal(0, 0.5, 128)).astype(np.float32)
    one.change("model.layers.2.mlp.up_proj", lambda values: values / rows[:, None])
    one.change("model.layers.2.mlp.down_proj", lambda values: values * rows)
    report = one.compared()
    assert not [finding for finding in report.causes if finding.finding.severity == "error"], first(report).message


def test_a_consumer_that_a_fold_forgot_is_named() -> None:
    one = Candidate("llama")
    scale = np.exp(np.random.default_rng(0).normal(0, 0.5, 64)).astype(np.float32)
    one.change("model.layers.1.input_layernorm", lambda gain: gain / scale)
    for leaf in ("q_proj", "k_proj"):
        one.change(f"model.layers.1.self_attn.{leaf}", lambda values: values * scale)
    assert first(one.compared()).location.module == "model.layers.1.self_attn.v_proj"


@pytest.mark.parametrize("change", [lambda gain: gain * 1.2, np.ones_like, lambda gain: gain[::-1]])
def test_a_norm_that_nobody_makes_up_for_is_named(change: Callable[[Any], Any]) -> None:
    one = Candidate("llama")
    one.change("model.layers.2.post_attention_layernorm", change)
    report = one.compared()
    assert first(report).location.module == "model.layers.2.post_attention_layernorm"
    assert len({cause.finding.location.module for cause in report.causes}) == 1


def test_neighbours_in_each_others_place_are_not_a_norm() -> None:
    one = Candidate("llama")
    names = [f"model.layers.1.mlp.{leaf}" for leaf in ("gate_proj", "up_proj")]
    first_one, second_one = (np.array(one.modules[name].dequantize()) for name in names)
    one.change(names[0], lambda _: second_one)
    one.change(names[1], lambda _: first_one)
    report = one.compared()
    assert {cause.finding.location.module for cause in report.causes} == set(names)


def test_a_whole_layer_is_one_finding() -> None:
    one = Candidate("llama")
    for leaf in ("q_proj", "k_proj", "v_proj", "o_proj"):
        one.change(f"model.layers.2.self_attn.{leaf}", lambda values: -values)
    for leaf in ("gate_proj", "up_proj", "down_proj"):
        one.change(f"model.layers.2.mlp.{leaf}", lambda values: -values)
    report = one.compared()
    assert first(report).location.layer == 2 and first(report).location.module is None
    assert len(report.causes) == 1


def test_a_bias_is_told_from_its_weight() -> None:
    one = Candidate("qwen2")
    one.bias("model.layers.1.self_attn.k_proj", lambda values: values + 0.5)
    finding = first(one.compared())
    assert finding.location.tensor == "model.layers.1.self_attn.k_proj.bias"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}, "rope_parameters"),
        ({"rms_norm_eps": 0.5}, "rms_norm_eps"),
        ({"hidden_act": "gelu"}, "hidden_act"),
    ],
)
def test_an_operator_is_proved_by_its_effect(values: dict[str, Any], key: str) -> None:
    one = Candidate("llama")
    one.config(**values)
    finding = first(one.compared())
    assert (finding.rule, finding.location.key) == ("DIV903", key)


def test_a_difference_without_effect_is_a_note() -> None:
    one = Candidate("llama")
    one.config(rms_norm_eps=1.001e-6)
    report = one.compared()
    assert report.status is Status.OK
    assert [finding.location.key for finding in report.findings if finding.rule == "DIV902"] == ["rms_norm_eps"]


def test_the_embedding_and_the_head_are_looked_at() -> None:
    one = Candidate("llama")
    one.change("model.embed_tokens", lambda values: np.roll(values, 1, 0))
    assert first(one.compared()).location.module == "model.embed_tokens"
    two = Candidate("llama")
    two.change("lm_head", lambda values: values * 1.5)
    assert first(two.compared()).location.module == "lm_head"


def test_values_that_are_not_finite_have_an_origin() -> None:
    one = Candidate("llama")

    def spoil(values: Any) -> Any:
        values[3, 5] = np.nan
        return values

    one.change("model.layers.1.mlp.gate_proj", spoil)
    report = one.compared()
    assert first(report).location.module == "model.layers.1.mlp.gate_proj"
    assert report.comparison is not None
    layers: Any = report.comparison["layers"]
    assert [layer["non_finite_origin"] for layer in layers] == [None, "model.layers.1.mlp.gate_proj", None, None]


def test_a_broken_reference_is_called_broken(tmp_path: Path) -> None:
    one = Candidate("llama")
    one.change("model.layers.2.mlp.down_proj", lambda values: values * np.inf)
    one.work.save(tmp_path / "broken")
    with pytest.raises(TargetError, match=r"reference is broken itself: model\.layers\.2\.mlp\.down_proj"):
        comparison.compare(str(one.path), str(tmp_path / "broken"))


def test_other_sizes_are_said_and_what_can_be_is_compared() -> None:
    shallow = folder("llama", num_hidden_layers=3)
    report = Candidate("llama").compared(shallow)
    assert "depth" in report.unjudged and report.status in (Status.PARTIAL, Status.FINDINGS)
    with pytest.raises(TargetError, match="hidden states of 64 values cannot be compared with the reference's 32"):
        Candidate("llama").compared(folder("llama", hidden_size=32))
    small = folder("llama", vocab_size=300)
    assert "vocabulary" in Candidate("llama").compared(small).unjudged


def test_modules_of_other_shapes_are_listed_as_not_compared() -> None:
    report = Candidate("llama").compared(folder("llama", intermediate_size=96))
    assert (
        "12 modules have other shapes than the reference's, model.layers.0.mlp.gate_proj first"
        in report.unjudged["shapes"]
    )
    assert report.causes[0].finding.location.key == "intermediate_size"
    assert report.comparison is not None
    modules: Any = report.comparison["modules"]
    assert {one["module"].rpartition(".")[2] for one in modules} == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_other_token_ids_for_the_same_text_are_told(golden: Path, tmp_path: Path) -> None:
    """Both models are run on the reference's ids, so that only the tokenizer is at fault."""
    healthy = golden / "base-bf16"
    work = Workspace(open_target(healthy))
    tokenizer = msgspec.json.decode((healthy / "tokenizer.json").read_bytes())
    vocabulary = tokenizer["model"]["vocab"]
    one, two = list(vocabulary)[-2:]
    common = sorted((name for name in vocabulary if len(name) == 1 and name.isalpha()), key=vocabulary.get)[:1] or [one]
    vocabulary[common[0]], vocabulary[two] = vocabulary[two], vocabulary[common[0]]
    work.write("tokenizer.json", msgspec.json.encode(tokenizer))
    candidate = WalkedModel(Evidence(work.source(), Settings()))
    report = compare_models(candidate, WalkedModel.open(str(healthy)), Question(texts=[f"{common[0]} b {common[0]}"]))
    assert [cause.finding.location.file for cause in report.causes] == ["tokenizer.json"]
    assert "other ids than the reference's for 1 of 1 texts" in first(report).message


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as the entry point gives it, whether or not this tree is installed."""
    code = (
        "import sys\n"
        "from degarble.cli import app\n"
        "from degarble_engine.cli import compare\n"
        "app.joined_commands = lambda: [compare]\n"
        "sys.exit(app.run(sys.argv[1:]))"
    )
    script = environment.pop("BEFORE", "") + code
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_the_command_prints_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Candidate("llama")
    one.change("model.layers.1.self_attn.v_proj", lambda values: values * 0)
    one.work.save(tmp_path / "zero")
    monkeypatch.setattr(app, "joined_commands", lambda: [compare_command])
    capsys.readouterr()  # what making the model told
    status = app.run(["compare", str(tmp_path / "zero"), str(one.path), "--format", "json"])
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert status == 1, shown.err
    jsonschema.validate(report, SCHEMA)
    assert report["findings"][0]["location"]["module"] == "model.layers.1.self_attn.v_proj"
    assert report["causes"][0]["finding"] == "f1"
    assert len(report["comparison"]["layers"]) == 4 and len(report["comparison"]["modules"]) == 28
    changed = next(
        one for one in report["comparison"]["modules"] if one["module"].endswith("layers.1.self_attn.v_proj")
    )
    assert len(changed["worst_tokens"]) == 5 and changed["worst_tokens"][0][1] == 1.0
    assert not shown.err, "nobody is watching"


def test_without_torch_the_command_says_what_to_install() -> None:
    hidden = "import sys\nsys.modules['torch'] = None\n"
    done = run_command("compare", "x", "y", "--format", "json", BEFORE=hidden)
    assert done.returncode == 2
    assert "pip install 'degarble[engine]'" in done.stderr
    assert json.loads(done.stdout)["status"] == "error"


@pytest.mark.parametrize("arguments", [("/nowhere", "/nowhere"), ("hf:a/b", "hf:a/b")])
def test_bad_targets_are_status_2(
    arguments: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "joined_commands", lambda: [compare_command])
    assert app.run(["compare", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_loads_no_torch() -> None:
    code = "import sys, degarble_engine, degarble_engine.cli.compare\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_cache_alone_is_swapped_on_request() -> None:
    """The loss of a coarse cache stands beside the whole one, which a copy of the reference does not have."""
    model = WalkedModel.open(str(folder("llama")))
    report = compare_models(model, model, Question(kv_form=read_form("int4")))
    assert report.comparison is not None and report.status is Status.OK
    swap: Any = report.comparison["kv_swap"]
    assert swap["form"] == "int4:tensor,tensor" and swap["kl_divergence"] > 0
    assert any("its KV cache alone in int4" in line for line in comparison_lines(report.comparison))
