"""TPL507: ids that are none, have nothing, or are a word."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from tests.checks.template.template_folders import TOKENS, findings, folder, gguf
from tests.family_patients import NAMES, family_patients


@pytest.mark.parametrize("value", [300, [300, 301], None, [], -1, [301, -1]])
def test_silent(value: Any) -> None:
    assert findings("TPL507", folder(config={"eos_token_id": value}, generation_config={"eos_token_id": value})) == []
    assert findings("TPL507", gguf(eos_token_id=3, eot_token_id=4)) == []
    assert findings("TPL507", gguf(eos_token_id=0xFFFFFFFF)) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (65, "ordinary"),
        ([300, 65], "ordinary"),
        (299, "no text"),
        (303, "no text"),
        (10**18, "no text"),
        (10**40, "bits"),
        (-7, "below zero"),
        ("300", "type str"),
        (300.0, "type float"),
        (True, "type bool"),
        ([300, "x"], "type str"),
        ([[300]], "type list"),
        ({"id": 300}, "type dict"),
        ("", "type str"),
    ],
)
def test_found(value: Any, words: str) -> None:
    stored = {"eos_token_id": value}
    for name, source in (("config", folder(config=stored)), ("generation_config", folder(generation_config=stored))):
        (found,) = findings("TPL507", source)
        assert found.severity is Severity.ERROR and words in found.message
        assert (found.location.file, found.location.key) == (f"{name}.json", "eos_token_id")


def test_nested_config_and_lists() -> None:
    (found,) = findings("TPL507", folder(config={"text_config": {"eos_token_id": [60, 61, 62]}}))
    assert found.location.key == "text_config.eos_token_id"
    assert {place.token_id for place in found.all_places} == {60, 61, 62, None}


def test_gguf() -> None:
    (found,) = findings("TPL507", gguf(eos_token_id=1, eot_token_id=3))
    assert found.location.key == "tokenizer.ggml.eos_token_id" and "'b'" in found.message


def test_rows_of_the_embedding_count() -> None:
    from degarble.checkpoint.workspace import Workspace
    from degarble.target import open_target

    workspace = Workspace(open_target(family_patients() / "qwen3"))
    workspace.json("generation_config.json")["eos_token_id"] = [151645, 151936]
    (found,) = findings("TPL507", workspace.source())
    assert "151936 rows" in found.message and found.location.token_id == 151936


def test_classic_of_deepseek() -> None:
    assert "deepseek-v3" in NAMES
    from degarble.checkpoint.workspace import Workspace
    from degarble.target import open_target

    workspace = Workspace(open_target(family_patients() / "deepseek-v3"))
    workspace.json("generation_config.json")["eos_token_id"] = 100001
    (found,) = findings("TPL507", workspace.source())
    assert "ordinary" in found.message


def test_tokens_are_needed() -> None:
    assert TOKENS[0] not in "".join(
        f.message for f in findings("TPL507", folder(tokenizer=None, config={"eos_token_id": 1}))
    )
