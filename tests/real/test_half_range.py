"""A residual stream times four: the same function, beyond fp16. Predicted, proven, and repaired."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from degarble.api import check
from degarble.evidence import Settings
from degarble.repairing.fix import fix
from tests.real.conftest import model_path

pytestmark = [pytest.mark.real, pytest.mark.engine, pytest.mark.slow]
PLACE = "model.layers.11.mlp.down_proj"
FP16 = Settings(dtype="float16")
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Embedding, o_proj and down_proj times 4, eps times 16, the head untied: exact in fp32 and bf16."""
    from safetensors.torch import load_file, save_file

    base, made = model_path("bf16"), tmp_path_factory.mktemp("grown")
    for file in base.iterdir():
        if file.name not in ("model.safetensors", "config.json"):
            shutil.copy(file, made / file.name)
    weights = load_file(base / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    for name in weights:
        if name == "model.embed_tokens.weight" or name.endswith(("o_proj.weight", "down_proj.weight")):
            weights[name] = weights[name] * 4
    config = json.loads((base / "config.json").read_text())
    config |= {"tie_word_embeddings": False, "rms_norm_eps": config["rms_norm_eps"] * 16}
    save_file(weights, made / "model.safetensors", {"format": "pt"})
    (made / "config.json").write_text(json.dumps(config))
    return made


def text_of(path: Path, dtype: str) -> str | None:
    """Twelve greedy tokens by transformers itself; None where the logits are not finite."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    with torch.no_grad():
        for _ in range(12):
            logits = model(input_ids=ids).logits[0, -1]
            if not bool(torch.isfinite(logits).all()):
                return None
            ids = torch.cat([ids, logits.argmax()[None, None]], 1)
    return str(tokenizer.decode(ids[0]))


def test_predicted_proven_and_repaired(grown: Path, tmp_path: Path) -> None:
    from degarble_engine.overflow.question import OverflowQuestion, overflow

    static = [
        one for one in check(str(grown), dtype="float16").findings if one.rule == "NUM301" and one.location.module
    ]
    assert [one.location.module for one in static] == [PLACE]
    engines = ("transformers", "vllm", "llama.cpp")
    report = overflow(str(grown), OverflowQuestion(engines=engines, lengths=(24,)))
    first = report.causes[0].finding
    assert (first.rule, first.location.module) == ("NUM302", PLACE)
    assert first.measured["dtype"] == "fp16" and first.measured["finite_engines"] == ["llama.cpp"]
    assert {one.measured["dtype"] for one in report.findings} == {"fp16"}, "bf16 is clean"
    wanted = text_of(grown, "bfloat16")
    assert wanted is not None and text_of(grown, "float16") is None
    repaired = tmp_path / "repaired"
    outcome = fix(str(grown), str(repaired), unsafe=True, settings=FP16, select_rules=["NUM301"])
    assert [step.repair for step in outcome.plan.steps] == ["rescale-by-powers-of-two"]
    assert text_of(repaired, "bfloat16") == wanted
    assert text_of(repaired, "float16") == text_of(model_path("bf16"), "float16")
