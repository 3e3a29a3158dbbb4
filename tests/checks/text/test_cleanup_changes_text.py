"""TOK415: who obeys the flag."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.checks.text.cleanup_changes_text import FLAG, FORCE, PROBES, REPLACED, cleaned
from degarble.evidence import Settings
from degarble.finding import Severity
from degarble.registry import Level
from tests.checks.text.text_findings import in_folder
from tests.tokenizer.small_tokenizers import byte_level, unigram, wordpiece


def config(**values: Any) -> Any:
    """A tokenizer_config.json."""
    return {"tokenizer_config": values}


def engine(name: Any, version: Any = None) -> Any:
    """What --engine says."""
    return Settings(level=Level.HEADER, engine=name, engine_version=version)


@pytest.mark.parametrize("value", [False, None, 0, "", []])
def test_off(value: Any) -> None:
    assert not in_folder("TOK415", byte_level(), **config(**{FLAG: value}))


@pytest.mark.parametrize("value", [True, 1, "true", "false"])
def test_on_for_bpe_is_an_info(value: Any) -> None:
    """Python takes every text for true."""
    (finding,) = in_folder("TOK415", byte_level(), **config(**{FLAG: value}))
    assert finding.severity is Severity.INFO and "5.13" in finding.message


@pytest.mark.parametrize(
    ("name", "version", "severity"),
    [
        ("transformers", "4.57.1", Severity.WARNING),
        ("Transformers", "5.0.0", Severity.WARNING),
        ("transformers", "5.13.0", Severity.INFO),
        ("transformers", "5.24.0", Severity.INFO),
        ("transformers", None, Severity.INFO),
        ("transformers", "nonsense", Severity.INFO),
        ("vllm", "0.9.0", Severity.INFO),
    ],
)
def test_version(name: Any, version: Any, severity: Any) -> None:
    (finding,) = in_folder("TOK415", byte_level(), engine(name, version), **config(**{FLAG: True}))
    assert finding.severity is severity


def test_forced() -> None:
    (finding,) = in_folder("TOK415", byte_level(), **config(**{FLAG: True, FORCE: True}))
    assert finding.severity is Severity.WARNING
    assert [place.key for place in finding.all_places] == [FLAG, FORCE]


@pytest.mark.parametrize("document", [unigram(), wordpiece(cleanup=False)])
def test_other_models_are_cleaned_by_all(document: Any) -> None:
    (finding,) = in_folder("TOK415", document, **config(**{FLAG: True}))
    assert finding.severity is Severity.WARNING


def test_decoder_of_word_piece() -> None:
    assert not in_folder("TOK415", wordpiece(cleanup=False))
    (finding,) = in_folder("TOK415", wordpiece())
    assert finding.location.key == "decoder.cleanup" and finding.severity is Severity.WARNING


def test_without_a_readable_tokenizer() -> None:
    (finding,) = in_folder("TOK415", b"{", **config(**{FLAG: True}))
    assert finding.severity is Severity.INFO


def test_same_as_transformers() -> None:
    base = pytest.importorskip("transformers.tokenization_utils_base")
    for text in (*PROBES, *(f"a{old}b" for old, _ in REPLACED)):
        assert cleaned(text) == base.PreTrainedTokenizerBase.clean_up_tokenization(None, text)
