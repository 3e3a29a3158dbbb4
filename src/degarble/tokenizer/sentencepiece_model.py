"""`tokenizer.model` of sentencepiece, through its own library (extra `sentencepiece`).

The library's habits at the start of a text are asked for by decoding some pieces, not guessed: it drops one leading
U+2581 where a dummy prefix was added, all of them where extra spaces are removed. The unknown token prints ` ⁇ `.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from degarble.checkpoint.interface import MAX_SMALL_FILE_BYTES, Source
from degarble.errors import MalformedFile, MissingExtra
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN, METASPACE
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.vocabulary import MAX_TOKEN_IDS

ALL_SPACES = 1 << 20


def read_sentencepiece(source: Source, file: str, declared: Mapping[str, Mapping[str, str]]) -> Tokenizer:
    """Read one. Raises MissingExtra without the library, MalformedFile if the library refuses the file."""
    if source.files()[file] > MAX_SMALL_FILE_BYTES:
        raise MalformedFile(file, "size", f"at most {MAX_SMALL_FILE_BYTES} bytes", f"{source.files()[file]} bytes")
    raw = source.read(file)
    model = open_sentencepiece(raw, file)
    size = model.get_piece_size()
    if size > MAX_TOKEN_IDS:
        raise MalformedFile(file, "pieces", f"at most {MAX_TOKEN_IDS}", str(size))
    pieces: list[str | None] = [model.id_to_piece(at) for at in range(size)]
    control = {at for at in range(size) if model.is_control(at) or model.is_unknown(at)}
    return Tokenizer(
        file=file,
        kind="byte-fallback" if any(model.is_byte(at) for at in range(size)) else "metaspace",
        pieces=pieces,
        added_tokens={
            at: AddedToken(token_id=at, content=str(pieces[at]), special=bool(model.is_control(at)))
            for at in sorted(control)
        },
        build_table=lambda: _table(model, pieces),
        pipeline={"opening_spaces_dropped": _opening_spaces(model)},
        declared=declared,
        raw=raw,
    )


def open_sentencepiece(raw: bytes, file: str) -> Any:
    """The library's own object."""
    try:
        import sentencepiece
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(raw)
    except RuntimeError as error:
        raise MalformedFile(file, "byte 0", "a sentencepiece model", str(error)) from None
    return model


def _opening_spaces(model: Any) -> int:
    """How many of three leading spaces the library drops: 0, 1 or 3."""
    shown: str = model.decode_pieces([METASPACE, METASPACE, METASPACE, "x"])
    return 3 - (len(shown) - len(shown.lstrip(" ")))


def _table(model: Any, pieces: list[str | None]) -> ByteTable:
    dropped = _opening_spaces(model)

    def piece(token_id: int, text: str) -> bytes | None:
        if model.is_unused(token_id):
            return None
        if model.is_unknown(token_id):
            return str(model.decode([token_id])).encode()
        if model.is_byte(token_id) and (byte := BYTE_TOKEN.match(text)):
            return bytes.fromhex(byte[1])
        return text.encode() if model.is_control(token_id) else text.replace(METASPACE, " ").encode()

    def opening(token_id: int) -> bytes | None:
        text = pieces[token_id] or ""
        return text[1:].replace(METASPACE, " ").encode() if text.startswith(METASPACE) else None

    return ByteTable(
        pieces=[piece(at, text or "") for at, text in enumerate(pieces)],
        strip=ALL_SPACES if dropped == 3 else 0,
        opening=opening if dropped == 1 else None,
    )
