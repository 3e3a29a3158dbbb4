"""TOK411 and its look-alike TOK421: too many pieces, too few, and padding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from degarble.evidence import Settings
from degarble.finding import Severity
from degarble.registry import Level
from tests.checks.text.family_files import in_model
from tests.checks.text.text_findings import findings, in_folder
from tests.tokenizer.small_tokenizers import byte_level

BASE = len(byte_level()["model"]["vocab"])
IDS = BASE + 3
HEADER = Settings(level=Level.HEADER)


def test_pieces_without_rows() -> None:
    (finding,) = findings("TOK411", in_model(byte_level(), BASE - 4))
    assert finding.severity is Severity.ERROR and finding.measured["pieces_without_row"] == 4


def test_config_without_weights() -> None:
    (finding,) = in_folder("TOK411", byte_level(), config={"model_type": "llama", "vocab_size": BASE - 1})
    assert (finding.location.file, finding.location.key) == ("config.json", "vocab_size")


@pytest.mark.parametrize("rows", [BASE, IDS, IDS + 2048])
def test_added_tokens_and_padding_are_silent(rows: int) -> None:
    assert not findings("TOK411", in_model(byte_level(), rows))


def test_far_smaller_tokenizer_is_a_warning() -> None:
    (finding,) = findings("TOK411", in_model(byte_level(), 32000))
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("stated", [None, True, -1, "x", [], 1.5])
def test_vocab_size_of_other_types(stated: object) -> None:
    assert not in_folder("TOK411", byte_level(), config={"model_type": "llama", "vocab_size": stated})


def test_padding_is_information() -> None:
    (finding,) = findings("TOK421", in_model(byte_level(), IDS + 5))
    assert finding.severity is Severity.INFO and finding.measured["ids_without_text"] == 5
    assert finding.location.token_id == IDS
    assert not findings("TOK421", in_model(byte_level(), IDS))


def test_holes_count() -> None:
    (finding,) = findings("TOK421", in_model(byte_level(hole=2), IDS + 2))
    assert finding.measured["ids_without_text"] == 2 and finding.location.token_id == BASE + 2


@pytest.mark.parametrize(
    ("engine", "severity"), [("vllm", Severity.ERROR), ("llama.cpp", Severity.INFO), ("sglang", Severity.INFO)]
)
def test_engine_that_ends_at_one(engine: str, severity: Severity) -> None:
    (finding,) = findings("TOK421", in_model(byte_level(), IDS + 5), replace(HEADER, engine=engine))
    assert finding.severity is severity
