"""Texts there and back, on every kind of vocabulary."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import EvidenceMissing
from degarble.tokenizer.encode import library_tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.round_trip import coder_of, first_loss, probe_texts
from tests.family_patients import NAMES, family_patients
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, stored, unigram, wordpiece
from tests.tokenizer.trained import trained


@pytest.mark.parametrize("name", NAMES)
def test_families_give_every_text_back(name: str) -> None:
    if name.endswith("-sentencepiece"):
        pytest.importorskip("sentencepiece")
    assert first_loss(coder_of(load_tokenizer(family_patients() / name))) is None


@pytest.mark.parametrize("document", [byte_level(), byte_fallback(), byte_fallback(strip=0), trained()])
def test_small_ones_too(tmp_path: Path, document: Any) -> None:
    assert first_loss(coder_of(stored(tmp_path, document))) is None


@pytest.mark.parametrize("normalizer", [{"type": "NFC"}, {"type": "NFKC"}, {"type": "Lowercase"}])
def test_what_is_declared_is_no_loss(tmp_path: Path, normalizer: Any) -> None:
    document = trained() | {"normalizer": normalizer}
    assert first_loss(coder_of(stored(tmp_path, document))) is None


@pytest.mark.parametrize("pattern", ["\\n", "\\d", "b", "[^a]+"])
def test_what_is_removed_is_lost(tmp_path: Path, pattern: str) -> None:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": False}
    document = trained()
    document["pre_tokenizer"]["pretokenizers"].insert(0, step)
    tokenizer = stored(tmp_path, document)
    loss = first_loss(coder_of(tokenizer))
    assert loss is not None and loss.num_lost <= loss.num_texts
    library = library_tokenizer(tokenizer)
    shown = library.decode(library.encode(loss.text, add_special_tokens=False).ids, skip_special_tokens=False)
    assert shown.encode() == loss.found
    assert loss.expected[: loss.at] == loss.found[: loss.at]
    assert loss.expected[loss.at : loss.at + 1] != loss.found[loss.at : loss.at + 1]


def test_two_spaces_at_the_start_count(tmp_path: Path) -> None:
    loss = first_loss(coder_of(stored(tmp_path, byte_fallback(strip=2))))
    assert loss is not None and loss.text.startswith("  ")


@pytest.mark.parametrize("document", [unigram(), wordpiece()])
def test_vocabularies_without_bytes_are_not_judged(tmp_path: Path, document: Any) -> None:
    with pytest.raises(EvidenceMissing):
        coder_of(stored(tmp_path, document))


def test_probes_have_what_is_lost_easily() -> None:
    joined = "".join(probe_texts())
    assert all(part in joined for part in ("\n\n", "  ", "\t", "1", "…", "\r\n"))
    assert max(joined) > "\uffff" and any("\u4e00" <= char <= "\u9fff" for char in joined)
    assert any(unicodedata.combining(char) for char in joined)
