"""Our BPE against the library's model, and against the obvious loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.tokenizer.bpe import Bpe, encode_reference
from degarble.tokenizer.merges import Merges

LETTERS = "abcd"


@st.composite
def vocabularies(draw: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Letters and what merges of merges make, in any order of ranks."""
    pieces = list(LETTERS)
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 12))):
        pair = (draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces)))
        if pair not in merges and len("".join(pair)) < 12:
            merges.append(pair)
            pieces.append("".join(pair))
    merges = draw(st.permutations(merges))
    return {piece: at for at, piece in enumerate(dict.fromkeys(pieces))}, merges


def own(ids: dict[str, int], merges: list[tuple[str, str]], **settings: Any) -> Bpe:
    return Bpe(ids=ids, rank=Merges(listed=[" ".join(pair) for pair in merges]).rank, **settings)


@given(vocabularies(), st.text(LETTERS, max_size=24), st.booleans())
def test_is_the_library_s(vocabulary: Any, text: str, ignore_merges: bool) -> None:
    from tokenizers.models import BPE

    ids, merges = vocabulary
    library = BPE(vocab=ids, merges=merges, ignore_merges=ignore_merges)
    bpe = own(ids, merges, ignore_merges=ignore_merges)
    assert bpe.encode(text) == [token.id for token in library.tokenize(text)] == encode_reference(bpe, text)


@pytest.mark.parametrize("fuse", [True, False])
@given(text=st.text("ab客é☃", max_size=12), has_bytes=st.booleans())
def test_unknown_characters_and_bytes(fuse: bool, text: str, has_bytes: bool) -> None:
    """Where only some characters have all their bytes, the library writes a pending unknown token behind them."""
    from tokenizers.models import BPE

    ids = {"a": 0, "b": 1, "ab": 2, "<unk>": 3}
    if has_bytes:
        ids |= {f"<0x{byte:02X}>": 10 + byte for byte in range(256)}
    library = BPE(vocab=ids, merges=[("a", "b")], unk_token="<unk>", fuse_unk=fuse, byte_fallback=True)
    bpe = own(ids, [("a", "b")], byte_fallback=True, unknown=3, fuse_unknown=fuse)
    assert bpe.encode(text) == [token.id for token in library.tokenize(text)]


def test_without_an_unknown_token_characters_are_dropped() -> None:
    bpe = own({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    assert bpe.encode("a☃b") == [2] and bpe.encode("☃") == [] and bpe.encode("") == []


def test_long_text_is_not_quadratic() -> None:
    ids = {"a" * length: length for length in range(1, 40)}
    bpe = Bpe(ids=ids, rank=lambda left, right: ids.get(left + right))
    assert sum(bpe.encode("a" * 50_000)) == 50_000


def test_merge_of_an_unknown_piece_is_not_done() -> None:
    assert own({"a": 0, "b": 1}, [("a", "b")]).encode("ab") == [0, 1]
