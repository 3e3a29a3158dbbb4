"""tokenizer.json by the second way in, where no table can express its decoder."""

from __future__ import annotations

import json
from typing import Any

import pytest

from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.evidence import Evidence, Settings
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import byte_level, unigram


def evidence(document: Any, name: Any = "tokenizer.json") -> Any:
    """Of a folder with one file."""
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Evidence(MemorySource({name: raw}), Settings())


def test_same_by_both_ways() -> None:
    right = evidence(byte_level()).get("stored_tokenizer")
    refused = evidence({**byte_level(), "decoder": {"type": "Unheard"}})
    assert refused.find("tokenizer") is None
    found = refused.get("stored_tokenizer")
    assert set(found.pieces) == set(right.pieces) and found.added == right.added
    assert found.model["type"] == right.model["type"] and found.stages("decoder")[0].kind == "Unheard"
    assert refused.get("spelling").is_byte_level


def test_scores_by_the_second_way() -> None:
    found = evidence({**unigram(), "decoder": {"type": "Unheard"}}).get("stored_tokenizer")
    assert "▁the" in found.pieces


@pytest.mark.parametrize(
    "document", [{}, {"model": 5}, {"model": {"vocab": 5}}, {"model": {"vocab": [1, [2], []]}, "added_tokens": [5, {}]}]
)
def test_other_values(document: Any) -> None:
    found = evidence(document).get("stored_tokenizer")
    assert not found.added and found.stages("decoder") == []


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff"])
def test_unreadable(raw: Any) -> None:
    with pytest.raises(EvidenceUnjudged):
        evidence(raw).get("stored_tokenizer")


def test_absent() -> None:
    with pytest.raises(EvidenceMissing):
        evidence(b"", "config.json").get("stored_tokenizer")
    with pytest.raises(EvidenceMissing):
        evidence(b"", "config.json").get("spelling")
