"""The pieces of tokenizer.model against the library's."""

from __future__ import annotations

import random

import pytest

from degarble.errors import MalformedFile
from degarble.tokenizer.sentencepiece_pieces import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    exchanged,
    read_pieces,
    read_texts,
    texts_of_kind,
    with_kind,
)
from tests.checks.text.family_files import files_of

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.mark.parametrize("patient", ["llama-2-sentencepiece", "gemma-2-sentencepiece"])
def test_against_the_library(patient: str) -> None:
    raw = files_of(patient)["tokenizer.model"]
    library = sentencepiece.SentencePieceProcessor(model_proto=raw)
    pieces = read_pieces(raw, "m")
    assert [piece.text for piece in pieces] == [library.id_to_piece(at) for at in range(library.get_piece_size())]
    assert read_texts(raw, "m") == [piece.text for piece in pieces]
    for at, piece in enumerate(pieces[:400]):
        assert (piece.kind == CONTROL) == library.is_control(at)
        assert (piece.kind == UNKNOWN) == library.is_unknown(at)
        assert (piece.kind == BYTE) == library.is_byte(at)
    assert ("<start_of_turn>" in texts_of_kind(raw, "m", USER_DEFINED)) == patient.startswith("gemma")


def test_edits_are_read_by_the_library() -> None:
    raw = files_of("llama-2-sentencepiece")["tokenizer.model"]
    pieces = read_pieces(raw, "m", 400)
    changed = with_kind(raw, pieces[2], NORMAL)
    library = sentencepiece.SentencePieceProcessor(model_proto=changed)
    assert not library.is_control(2) and library.id_to_piece(2) == "</s>"
    assert read_pieces(changed, "m", 3)[2].kind == NORMAL
    moved = exchanged(raw, pieces[300], pieces[302])
    library = sentencepiece.SentencePieceProcessor(model_proto=moved)
    assert (library.id_to_piece(300), library.id_to_piece(302)) == (pieces[302].text, pieces[300].text)


def test_long_pieces_and_other_fields() -> None:
    """A piece of more than 127 bytes, fields in another order, a field nobody knows."""
    long = "x" * 300
    body = b"\x0a\xac\x02" + long.encode() + b"\x15\0\0\0\0"
    record = b"\x0a" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body
    other = b"\x0a\x0c" + b"\x18\x03" + b"\x0a\x01a" + b"\x15\0\0\0\0" + b"\x20\x01"
    pieces = read_pieces(record + b"\x12\x00" + b"\x0a\x0c" + other[2:], "m")
    assert [(piece.text[:2], piece.kind) for piece in pieces] == [("xx", NORMAL), ("a", CONTROL)]


def test_damage_is_named() -> None:
    raw = files_of("llama-2-sentencepiece")["tokenizer.model"]
    rng = random.Random(1)
    for _ in range(300):
        cut = bytearray(raw[: rng.randrange(400)])
        for _ in range(3):
            if cut:
                cut[rng.randrange(len(cut))] = rng.randrange(256)
        try:
            read_pieces(bytes(cut), "m")
        except MalformedFile:
            continue
    for damaged in (b"", b"\x0a", b"\x0a\xff", b"\x00\x00", b"\x0a\x03\x0a\x01\xff", b"\x0f\x01", b"\x80" * 20):
        with pytest.raises(MalformedFile):
            read_pieces(damaged, "m")
