"""Incremental UTF-8 against the written-out rule and against Python."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from degarble.tokenizer.utf8 import MAX_PENDING_BYTES, decode_available, decode_available_reference

EDGES = bytes.fromhex("00417f8090bfc1c2dfe0a09fe1eced9feeeff0f1f3f48ff5ff")


def test_all_short_sequences_of_edge_bytes() -> None:
    for length in range(1, 4):
        for data in map(bytes, itertools.product(EDGES, repeat=length)):
            for final in (False, True):
                assert decode_available(data, final=final) == decode_available_reference(data, final=final)


@given(st.binary(max_size=40))
def test_any_bytes(data: bytes) -> None:
    text, pending = decode_available(data)
    assert (text, pending) == decode_available_reference(data)
    assert len(pending) <= MAX_PENDING_BYTES
    assert text + decode_available(pending, final=True)[0] == data.decode("utf-8", "replace")


@given(st.text(max_size=20))
def test_text_leaves_with_its_last_byte(text: str) -> None:
    assert decode_available_reference(text.encode()) == (text, b"")
