"""TPL506: which files have to name the end of a turn."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.template.template_folders import CHATML, TOKENS, config_with, findings, folder, gguf, severities
from tests.templates.test_turns import ALPACA, GLM, HARMONY

START, END, TEXT = range(300, 303)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, []),
        ({"generation_config": {"eos_token_id": [TEXT, END]}}, []),
        ({"config": {"eos_token_id": END}}, []),
        ({"config": {"eos_token_id": TEXT}, "generation_config": {"eos_token_id": END}}, []),
        ({"config": {"text_config": {"eos_token_id": END}}}, []),
        ({"generation_config": {"eos_token_id": TEXT}}, ["warning"]),
        ({"config": {"eos_token_id": TEXT}}, ["warning"]),
        ({"config": {"eos_token_id": END}, "generation_config": {"eos_token_id": TEXT}}, ["warning"]),
        ({"tokenizer_config": config_with(eos_token=TOKENS[2])}, ["error"]),
        ({"tokenizer_config": config_with(eos_token=None)}, ["error"]),
        (
            {"tokenizer_config": config_with(eos_token=TOKENS[2]), "generation_config": {"eos_token_id": TEXT}},
            ["error"],
        ),
        (
            {"tokenizer_config": config_with(eos_token=TOKENS[2]), "generation_config": {"eos_token_id": [TEXT, END]}},
            [],
        ),
        ({"tokenizer_config": config_with(eos_token=TOKENS[2]), "config": {"eos_token_id": END}}, []),
    ],
)
def test_folders(files: dict[str, Any], expected: list[str]) -> None:
    assert severities("TPL506", folder(**files)) == expected


def test_readers_are_named() -> None:
    (found,) = findings("TPL506", folder(generation_config={"eos_token_id": TEXT}))
    assert found.location.file == "generation_config.json" and "vLLM" in found.message
    assert found.fix is not None and found.fix.safe


def test_formats_without_an_end_of_turn() -> None:
    assert findings("TPL506", folder(ALPACA, tokens=("<s>", "</s>"))) == []
    harmony = ("<|start|>", "<|return|>", "<|end|>", "<|message|>")
    assert findings("TPL506", folder(HARMONY, tokens=harmony)) == []
    glm = ("<|user|>", "<|endoftext|>", "<|assistant|>")
    assert severities("TPL506", folder(GLM, tokens=glm)) == ["warning"]
    assert findings("TPL506", folder(GLM, tokens=glm, generation_config={"eos_token_id": [300, 301]})) == []


@pytest.mark.parametrize(
    ("tokens", "metadata", "expected"),
    [
        (TOKENS, {"eos_token_id": 3}, []),
        (TOKENS, {"eos_token_id": 4, "eot_token_id": 3}, []),
        (TOKENS, {"eos_token_id": 4}, ["warning"]),
        (TOKENS, {}, ["warning"]),
        (("<|im_start|>", "<|turn_over|>", "</s>"), {"eos_token_id": 4}, ["error"]),
    ],
)
def test_gguf(tokens: tuple[str, ...], metadata: dict[str, int], expected: list[str]) -> None:
    assert severities("TPL506", gguf(CHATML.replace("<|im_end|>", tokens[1]), tokens=tokens, **metadata)) == expected


@pytest.mark.parametrize("value", [None, "2", [], [[2]], {"a": 1}, True, -1, 10**30, 1.5, [None, "x", 10**18]])
def test_odd_ids(value: Any) -> None:
    findings("TPL506", folder(config={"eos_token_id": value}, generation_config={"eos_token_id": value}))
