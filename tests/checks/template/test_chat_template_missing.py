"""TPL501: base models are silent, and a template in any place is enough."""

from __future__ import annotations

import pytest

from tests.checks.template.template_folders import CHATML, TOKENS, config_with, findings, folder, gguf, severities

LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")


@pytest.mark.parametrize(
    "source",
    [
        folder(None),
        folder(None, tokens=("<｜x｜>", "</s>"), name="Llama-2-7b-chat-hf"),
        folder(None, tokens=("<bos>", "<eos>"), name="gemma-2-2b-it"),
        folder(None, tokens=("a", "</s>"), config={"_name_or_path": "org/Mistral-7B-Instruct-v0.1"}),
        folder(None, tokens=LLAMA, generation_config={"eos_token_id": [301, 303]}),
        folder(None, tokens=DEEPSEEK),
        gguf(None, eos_token_id=3),
        gguf(None, tokens=("<s>", "</s>"), eos_token_id=3, general__name="TinyLlama Chat"),
    ],
)
def test_tuned_for_chat(source) -> None:  # type: ignore[no-untyped-def]
    (found,) = findings("TPL501", source)
    assert str(found.severity) == "warning" and "no chat template" in found.message


@pytest.mark.parametrize(
    "source",
    [
        folder(CHATML),
        folder(None, jinja=CHATML),
        folder(None, chat_template={"chat_template": CHATML}),
        gguf(CHATML, eos_token_id=3),
        folder(None, tokens=("<s>", "</s>"), name="Mistral-7B-v0.3"),
        folder(None, tokens=("<s>", "</s>"), name="chatter-base"),
        folder(None, tokens=LLAMA),
        folder(None, tokens=(*TOKENS[:1], "<|endoftext|>", "<|im_end|>"), name="Qwen2.5-7B"),
        folder(None, tokens=DEEPSEEK, name="DeepSeek-V3-Base"),
        folder(None, tokens=("<s>", "</s>", "[INST]", "[/INST]")),
        gguf(None, tokens=("<s>", "</s>"), eos_token_id=3),
        folder(None, tokenizer_config=None, tokens=("<s>",)),
        folder(0),
        folder([]),
    ],
)
def test_silent(source) -> None:  # type: ignore[no-untyped-def]
    assert findings("TPL501", source) == []


def test_engines_bring_their_own() -> None:
    assert severities("TPL501", folder(None, tokens=(*DEEPSEEK, "｜DSML｜"))) == ["info"]


def test_two_places_that_differ_are_an_info() -> None:
    (found,) = findings("TPL501", folder(CHATML + "x", jinja=CHATML))
    assert str(found.severity) == "info" and found.location.file == "tokenizer_config.json"
    assert findings("TPL501", folder(CHATML + "\n", jinja=CHATML)) == []


def test_named_templates_are_not_compared() -> None:
    named = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": CHATML + "x"}]
    assert findings("TPL501", folder(None, tokenizer_config=config_with(named))) == []


@pytest.mark.parametrize("value", [3, "x", [1], None, {"_name_or_path": 7}, {"_name_or_path": ["x-chat"]}])
def test_odd_configs(value: object) -> None:
    findings("TPL501", folder(None, config=value, generation_config=value, special_tokens_map=value))
