"""What is opened for serving, from several formats, and what the command refuses before it loads anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from degarble.errors import TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.cli.serve import KEY_VARIABLE, serve
from degarble_engine.engine.llm_engine import EngineOptions
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.server.served_model import open_served
from tests.degarble_engine.server.served import opened

MESSAGES = [{"role": "user", "content": "Where does the road end?"}]


@pytest.mark.parametrize("form", ["gptqmodel-gptq-sym-g128", "llama.cpp-q4_k_m", "llm-compressor-w8a8-int8"])
def test_every_format_answers(golden: Path, form: str) -> None:
    evidence = Evidence(open_target(golden / form), Settings())
    model = open_served(evidence, form, dtype="fp32", options=EngineOptions(block_size=4, num_gpu_blocks=60))
    ids = model.prompter.encode_chat(MESSAGES, None, {})
    assert opened().tokenizer.ids_by_piece["<|im_end|>"] in model.engine.eos_ids
    assert ids == opened().prompter.encode_chat(MESSAGES, None, {})
    assert model.prompter.method == ("bpe" if form.startswith("llama.cpp") else "tokenizers")
    (request,) = model.engine.generate([ids], SamplingParams(max_tokens=4, ignore_eos=True))
    assert request.num_outputs == 4
    assert model.arithmetic.startswith("sums in float32, K/V in float32, attention ")


def test_without_a_tokenizer_nothing_is_served(golden: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(golden / "base-bf16" / name, tmp_path)
    with pytest.raises(TargetError, match="no tokenizer"):
        open_served(Evidence(open_target(tmp_path), Settings()), "bare")


def test_defaults_of_generation_config_are_the_request_s(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "base-bf16", tmp_path, dirs_exist_ok=True)
    given = {"temperature": 0.6, "top_k": None, "top_p": 0.9, "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(given))
    model = open_served(
        Evidence(open_target(tmp_path), Settings()), "m", options=EngineOptions(block_size=4, num_gpu_blocks=20)
    )
    assert model.defaults == {"temperature": 0.6, "top_p": 0.9}


def test_the_command_refuses_what_it_cannot_do(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = str(golden / "base-bf16")
    with pytest.raises(UsageError, match="--dtype 'int3'"):
        serve(target, dtype="int3")
    monkeypatch.setenv(KEY_VARIABLE, " ")
    with pytest.raises(UsageError, match="an empty key"):
        serve(target)
