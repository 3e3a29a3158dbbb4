"""Stored decoders as tables, against the library's own decode."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import EvidenceUnjudged
from tests.tokenizer import small_tokenizers as small

STRIP_EACH: dict[str, Any] = {
    "decoder": {
        "type": "Sequence",
        "decoders": [{"type": "Strip", "content": "▁", "start": 1, "stop": 0}, {"type": "Fuse"}],
    }
}
DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "byte-fallback": small.byte_fallback,
    "byte-fallback, no strip": lambda: small.byte_fallback(strip=0),
    "byte-fallback, strip 3": lambda: small.byte_fallback(strip=3),
    "metaspace": small.unigram,
    "metaspace, first": lambda: small.unigram(prepend_scheme="first"),
    "metaspace, never": lambda: small.unigram(prepend_scheme="never"),
    "wordpiece": small.wordpiece,
    "wordpiece, as it is": lambda: small.wordpiece(cleanup=False),
    "none": lambda: small.wordpiece() | {"decoder": None},
    "strip each": lambda: small.unigram() | STRIP_EACH,
    "byte-level": small.byte_level,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_whole_decode_is_the_library_s(name: str, tmp_path: Path) -> None:
    document = DOCUMENTS[name]()
    tokenizer = small.stored(tmp_path, document)
    valid = [at for at in range(tokenizer.num_ids) if tokenizer.pieces[at] is not None]
    if "fallback" in name:  # runs of invalid byte tokens are the one place where the library is not followed
        valid = [at for at in valid if not 0x80 + 3 <= at < 0x100 + 3]
    rng = random.Random(name)
    for _ in range(300):
        ids = rng.choices(valid, k=rng.randint(0, 12))
        assert tokenizer.table.join(ids).decode("utf-8", "replace") == small.library_text(document, ids), ids


def test_a_run_of_byte_tokens_keeps_its_valid_characters(tmp_path: Path) -> None:
    document = small.byte_fallback()
    tokenizer = small.stored(tmp_path, document)
    ids = [byte + 3 for byte in b"\xe4\xbd\xa0\xf0"]
    assert tokenizer.table.join(ids).decode("utf-8", "replace") == "你\ufffd"
    assert small.library_text(document, ids) == "\ufffd" * 4


@pytest.mark.parametrize(
    ("decoder", "word"),
    [
        ({"type": "BPEDecoder", "suffix": "</w>"}, "BPEDecoder"),
        ({"type": "CTC", "pad_token": "<pad>"}, "CTC"),
        ({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}, "fixed string"),
        ({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]}, "after Fuse"),
        ({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "x", "start": 1}]}, "Strip"),
        ({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "stop": 1}]}, "Strip"),
    ],
)
def test_what_no_table_can_express_is_refused_by_name(decoder: dict[str, Any], word: str, tmp_path: Path) -> None:
    with pytest.raises(EvidenceUnjudged, match=word):
        small.stored(tmp_path, small.unigram() | {"decoder": decoder})


def test_added_tokens_of_byte_level_vocabularies_are_text(tmp_path: Path) -> None:
    """The library reads `é` in an added token as one byte, and shows U+FFFD."""
    document = small.byte_level()
    token_id = document["added_tokens"][-1]["id"] + 1
    document["added_tokens"].append(small.added(token_id, "<é>", special=False))
    tokenizer = small.stored(tmp_path, document)
    assert tokenizer.table.bytes_of(token_id) == "<é>".encode()
    assert small.library_text(document, [token_id]) == "<\ufffd>"
