"""The pressure test counts what it should count."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.stress import num_late, oracle_deltas, stress
from tests.tokenizer import small_tokenizers as small


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_no_damage_in_any_corpus(kind: str, tmp_path: Path) -> None:
    rows = stress(small.stored(tmp_path, getattr(small, kind)()), count=3)
    assert len(rows) == 15
    for row in rows:
        assert (row.exact_percent_damaged, row.num_different, row.num_late_chars) == (0, 0, 0), row
        if row.corpus in ("chinese", "emoji", "rare-han"):
            assert row.naive_percent_damaged > 90
            assert row.percent_round_trip == 100


def test_a_gguf_vocabulary(golden: Path) -> None:
    rows = stress(load_tokenizer(golden / "llama.cpp-q4_0" / "model-Q4_0.gguf"), count=2, seed=5)
    assert all(row.num_different == 0 and row.us_per_token < 50 for row in rows)


def test_late_characters_are_counted() -> None:
    assert num_late(["", "ab", "c"], ["a", "b", "c"]) == 1
    assert num_late(["a", "b", "c"], ["a", "b", "c"]) == 0
    assert num_late(["", "", "abc"], ["a", "b", "c"]) == 3


def test_the_oracle_applies_the_start_once(tmp_path: Path) -> None:
    tokenizer = small.stored(tmp_path, small.byte_fallback())
    the = tokenizer.ids_by_piece["▁the"]
    assert oracle_deltas(tokenizer.table, [the, the]) == ["the", " the", ""]
