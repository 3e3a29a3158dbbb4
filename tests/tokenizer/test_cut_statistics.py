"""What trained vocabularies say about their own cuts and about others'."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.checks.text.pretokenizer_lost import MAX_SHARE_APART, SUSPICIOUS_SHARE_APART
from degarble.tokenizer.cut_families import ordinary_pieces
from degarble.tokenizer.cut_statistics import cut_statistics
from degarble.tokenizer.cuts import Cutter, byte_level, gguf_pretokenizers
from tests.tokenizer.small_tokenizers import stored
from tests.tokenizer.trained import trained


def cutter(name: str | None) -> Cutter:
    return Cutter(None, byte_level((gguf_pretokenizers()[name].regexes or ()) if name else ()))


@pytest.mark.parametrize("cuts", ["gpt-2", "smollm", "llama-bpe", "deepseek-v3", "gpt-4o"])
def test_own_cuts(tmp_path: Path, cuts: str) -> None:
    ordinary = ordinary_pieces(stored(tmp_path, trained(cuts)))
    own = cut_statistics(ordinary, cutter(cuts))
    assert own.share_apart < SUSPICIOUS_SHARE_APART / 2 and not own.is_uncut and own.num_judged > 200
    lost = cut_statistics(ordinary, cutter(None))
    assert lost.is_uncut and lost.share_apart == 0


def test_foreign_cuts(tmp_path: Path) -> None:
    ordinary = ordinary_pieces(stored(tmp_path, trained("llama-bpe")))
    assert cut_statistics(ordinary, cutter("gpt-2")).share_apart > MAX_SHARE_APART


def test_trained_without_cuts(tmp_path: Path) -> None:
    ordinary = ordinary_pieces(stored(tmp_path, trained(None)))
    found = cut_statistics(ordinary, cutter(None))
    assert not found.is_uncut and found.num_across > 0 and found.share_apart == 0


def test_few_and_odd_pieces() -> None:
    assert cut_statistics([], cutter(None)).share_apart == 0
    odd = ["Ã", "客", "a" * 10_000, "", "ab"]
    assert cut_statistics(odd, cutter("gpt-2")).num_judged == 1
