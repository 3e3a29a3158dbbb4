"""TOK413: mixtures of families are named, fine-tunes and distilled models are not."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from degarble.finding import Finding
from tests.checks.text.family_files import files_of, mixed, values_of
from tests.checks.text.text_findings import findings, in_folder
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import added, byte_level

FOLDER = Path(__file__).parent.parent.parent.parent / ".work" / "tokenizers"
PUBLISHED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "deepseek_v3": ("DeepSeek V3", 129280, {"bos_token_id": 0, "eos_token_id": 1}),
    "qwen3": ("Qwen 3", 151936, {"bos_token_id": 151643, "eos_token_id": [151645, 151643], "pad_token_id": 151643}),
    "llama3_1": ("Llama 3", 128256, {"bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]}),
    "gptoss": ("GPT-OSS", 201088, {"bos_token_id": 199998, "eos_token_id": [200002, 199999, 200012]}),
    "gemma3": ("Gemma 3", 262208, {"bos_token_id": 2, "eos_token_id": [1, 106], "pad_token_id": 0}),
    "llama2": ("Mistral v1", 32000, {"bos_token_id": 1, "eos_token_id": 2}),
}
"""Family, rows, and generation_config of the release."""
ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "additional_special_tokens")


def only(source: MemorySource) -> Finding:
    (finding,) = findings("TOK413", source)
    return finding


def test_v2_stop_id_beside_a_v3_tokenizer() -> None:
    """The incident: 100001 ends a sentence in V2 and is a word in V3."""
    finding = only(mixed("deepseek-v3", generation_config={"bos_token_id": 0, "eos_token_id": 100001}))
    assert (finding.location.file, finding.location.key) == ("generation_config.json", "eos_token_id")
    assert "DeepSeek V2" in finding.message and "of DeepSeek V3" in finding.message
    assert "printed, and the answer goes on" in finding.message


def test_map_of_another_family() -> None:
    finding = only(mixed("deepseek-v3", special_tokens_map=values_of("llama-3", "special_tokens_map.json")))
    assert finding.location.file == "special_tokens_map.json"
    assert "is of Llama 3" in finding.message and "tokenizer.json is of DeepSeek V3" in finding.message
    assert "128815 or above" in finding.message and "no answer ends" in finding.message


def test_new_id_past_the_embedding() -> None:
    finding = only(mixed("llama-3", special_tokens_map=values_of("deepseek-v3", "special_tokens_map.json")))
    assert "past the 128256 rows of the embedding" in finding.message


def test_tokenizer_json_is_outvoted() -> None:
    finding = only(mixed("llama-3", **{"tokenizer.json": files_of("qwen3")["tokenizer.json"]}))
    assert finding.location.file == "tokenizer.json"
    assert "is the vocabulary of Qwen 3" in finding.message and "of Llama 3" in finding.message


def test_second_vocabulary_of_another_family() -> None:
    model = files_of("gemma-2-sentencepiece")["tokenizer.model"]
    files = {**files_of("llama-2"), "tokenizer.model": model}
    finding = only(MemorySource(files))
    assert finding.location.file == "tokenizer.model"
    assert "Gemma 2" in finding.message and "Llama 2" in finding.message


def test_template_of_another_family() -> None:
    template = files_of("deepseek-v3")["chat_template.jinja"]
    finding = only(mixed("llama-3", **{"chat_template.jinja": template}))
    assert finding.location.file == "chat_template.jinja" and "DeepSeek V3" in finding.message


def test_gguf_stop_id_of_another_family() -> None:
    from degarble.checkpoint.workspace import Workspace
    from degarble.target import open_target
    from tests.family_patients import family_patients

    workspace = Workspace(open_target(family_patients() / "deepseek-v3-gguf"))
    shard: Any = workspace.shard("model-BF16.gguf")
    shard.set_metadata("tokenizer.ggml.eos_token_id", 100001)
    (finding,) = findings("TOK413", workspace.source())
    assert finding.location.key == "tokenizer.ggml.eos_token_id" and "DeepSeek V2" in finding.message


def chatml_on_llama_3() -> dict[str, Any]:
    """A fine-tune: two tokens added, named everywhere."""
    document = values_of("llama-3", "tokenizer.json")
    document["added_tokens"] += [
        added(128256, "<|im_start|>", special=True),
        added(128257, "<|im_end|>", special=True),
    ]
    return {
        "tokenizer": document,
        "tokenizer_config": {"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"},
        "special_tokens_map": {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|im_end|>"}},
        "generation_config": {"bos_token_id": 128000, "eos_token_id": [128257, 128009]},
        "chat_template.jinja": files_of("qwen3")["chat_template.jinja"],
    }


def distilled_qwen() -> dict[str, Any]:
    """R1-Distill-Qwen: DeepSeek's texts in the places of Qwen's, and Qwen's bos id left in config.json."""
    texts = {
        151643: "<｜end▁of▁sentence｜>",
        151644: "<｜User｜>",
        151645: "<｜Assistant｜>",
        151646: "<｜begin▁of▁sentence｜>",
        151647: "<|EOT|>",
        151648: "<think>",
        151649: "</think>",
    }
    document = values_of("qwen3", "tokenizer.json")
    document["added_tokens"] = [entry for entry in document["added_tokens"] if entry["id"] < 151665]  # as in Qwen 2.5
    for entry in document["added_tokens"]:
        entry["content"] = texts.get(entry["id"], entry["content"])
    named = {"bos_token": texts[151646], "eos_token": texts[151643], "pad_token": texts[151643]}
    config = {**values_of("qwen3", "config.json"), "bos_token_id": 151643, "eos_token_id": 151643}
    return {
        "tokenizer": document,
        "tokenizer_config": named,
        "special_tokens_map": named,
        "config": config,
        "generation_config": {"bos_token_id": 151646, "eos_token_id": 151643},
        "added_tokens": None,
        "chat_template.jinja": files_of("deepseek-v3")["chat_template.jinja"],
    }


@pytest.mark.parametrize(("patient", "make"), [("llama-3", chatml_on_llama_3), ("qwen3", distilled_qwen)])
@pytest.mark.parametrize("rule", ["TOK401", "TOK402", "TOK404", "TOK405", "TOK413"])
def test_look_alikes_are_silent(patient: str, make: Any, rule: str) -> None:
    assert not findings(rule, mixed(patient, **make()))


def test_unknown_vocabulary_claims_no_family() -> None:
    others = {"tokenizer_config": values_of("llama-3", "tokenizer_config.json")}
    assert not in_folder("TOK413", byte_level(), **others)
    assert in_folder("TOK401", byte_level(), **others)


@pytest.mark.parametrize("text", ["</s>", "<unk>", "<|im_end|>"])
def test_one_generic_text_names_no_family(text: str) -> None:
    config = {**values_of("llama-3", "tokenizer_config.json"), "eos_token": text}
    assert not findings("TOK413", mixed("llama-3", tokenizer_config=config))
    assert findings("TOK401", mixed("llama-3", tokenizer_config=config))


@cache
def published(name: str) -> dict[str, Any]:
    """A release as it lies in a folder."""
    if not (FOLDER / name).is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    _, rows, generation = PUBLISHED[name]
    config = json.loads((FOLDER / name / "tokenizer_config.json").read_bytes())
    return {
        "tokenizer.json": (FOLDER / name / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": config,
        "special_tokens_map.json": {role: config[role] for role in ROLES if config.get(role) is not None},
        "generation_config.json": generation,
        "config.json": {"vocab_size": rows, **generation},
    }


def folder(files: dict[str, Any]) -> MemorySource:
    return MemorySource({k: v if isinstance(v, bytes) else json.dumps(v).encode() for k, v in files.items()})


@pytest.mark.real
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(PUBLISHED, 2)))
@pytest.mark.parametrize(
    "kept", ["special_tokens_map.json", "tokenizer_config.json", "generation_config.json", "tokenizer.json"]
)
def test_published_mixtures(kept: str, one: str, other: str) -> None:
    """One file of a release among the files of another: that file is named, and both families."""
    (finding,) = findings("TOK413", folder({**published(other), kept: published(one)[kept]}))
    assert finding.location.file == kept
    for name in (one, other):
        assert PUBLISHED[name][0].rpartition(" ")[2] in finding.message, finding.message


@pytest.mark.real
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(PUBLISHED, 2)))
@pytest.mark.parametrize("layout", ["map", "map and config", "config"])
def test_published_mixtures_without_config_json(layout: str, one: str, other: str) -> None:
    """The sparse layouts: a map or a tokenizer_config.json beside a tokenizer.json, and nothing else."""
    map_, config = "special_tokens_map.json", "tokenizer_config.json"
    files = {"tokenizer.json": published(other)["tokenizer.json"]}
    if layout == "config":
        files[config] = published(one)[config]
    else:
        files[map_] = published(one)[map_]
    if layout == "map and config":
        files[config] = published(other)[config]
    (finding,) = findings("TOK413", folder(files))
    assert finding.location.file == (config if layout == "config" else map_)


@pytest.mark.real
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_are_silent(name: str) -> None:
    for rule in ("TOK401", "TOK402", "TOK403", "TOK404", "TOK405", "TOK411", "TOK413"):
        assert not findings(rule, folder(published(name))), rule
