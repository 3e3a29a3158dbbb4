"""The bytes of all pieces at once, for the two decoders that nearly every vocabulary has.

`Pipeline.table` takes piece by piece through its steps, which is what the words of a decoder mean; this is a third of
its time, since a check of 262,000 pieces has no more than that. What it does not know it leaves to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN
from degarble.tokenizer.stages import stages

SEPARATOR = "\0"
_LONG_TAIL = ("Fuse", "Strip")
"""Steps over the whole text, which a table keeps apart."""


def bulk_pieces(
    pieces: Sequence[str | None], decoder: Mapping[str, Any] | None, verbatim: frozenset[int]
) -> list[bytes | None] | None:
    """Id -> bytes; None if the decoder or a piece needs the long way."""
    steps = stages(decoder, "decoder")
    kinds = [step.kind for step in steps]
    if kinds == ["ByteLevel"]:
        return _byte_level(pieces, verbatim)
    if kinds[:2] == ["Replace", "ByteFallback"] and tuple(kinds[2:]) in (_LONG_TAIL[:1], _LONG_TAIL) and not verbatim:
        pattern, content = steps[0].settings.get("pattern"), steps[0].settings.get("content")
        old = pattern.get("String") if isinstance(pattern, Mapping) else None
        if isinstance(old, str) and isinstance(content, str) and old and SEPARATOR not in old + content:
            return _byte_fallback(pieces, old, content)
    return None


def _byte_level(pieces: Sequence[str | None], verbatim: frozenset[int]) -> list[bytes | None] | None:
    """Letters of all pieces in one string: a letter is a byte, so the bytes can be cut where the letters were."""
    texts = ["" if piece is None or at in verbatim else piece for at, piece in enumerate(pieces)]
    data = letters_to_bytes("".join(texts))
    if data is None:
        return None
    ends = list(accumulate(map(len, texts)))
    found: list[bytes | None] = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    for at, piece in enumerate(pieces):
        if piece is None:
            found[at] = None
    for at in verbatim:
        piece = pieces[at]
        found[at] = None if piece is None else piece.encode("utf-8", "surrogatepass")
    return found


def _byte_fallback(pieces: Sequence[str | None], old: str, new: str) -> list[bytes | None] | None:
    joined = SEPARATOR.join([piece or "" for piece in pieces])
    if joined.count(SEPARATOR) != len(pieces) - 1:
        return None
    data = joined.replace(old, new).encode("utf-8", "surrogatepass")
    found: list[bytes | None] = list(data.split(SEPARATOR.encode()))
    for at in [at for at, piece in enumerate(pieces) if piece is None]:
        found[at] = None
    for at, piece in [(at, piece) for at, piece in enumerate(pieces) if piece and piece[:3] == "<0x"]:
        if byte := BYTE_TOKEN.match(piece.replace(old, new)):
            found[at] = bytes.fromhex(byte[1])
    return found
