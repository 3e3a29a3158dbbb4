"""Id -> bytes: the only thing an exact detokenizer needs to know about a tokenizer.

The text of a sequence is the bytes of its ids, one after the other, read as UTF-8. Two details belong to the start of a
text and to nothing else: a decoder may drop leading spaces (`strip`), or write its first token differently (`opening`).
Both are applied once a sequence, never once a call; doing it once a call is how streams lose their spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

Opening = Callable[[int], bytes | None]


class ByteTable(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of every id."""

    pieces: Sequence[bytes | None]
    """Id -> bytes inside a text; None for an id without a string."""
    strip: int = 0
    """At most so many spaces are dropped from the start of a text."""
    opening: Opening | None = None
    """Id -> bytes as the first token of a text, where a decoder treats that differently; None: as in `pieces`."""

    def bytes_of(self, token_id: int) -> bytes | None:
        """Bytes of one id inside a text, which is also what logprob entries should carry. None: it has no string."""
        return self.pieces[token_id] if 0 <= token_id < len(self.pieces) else None

    def join(self, token_ids: Iterable[int], hidden: frozenset[int] = frozenset()) -> bytes:
        """Bytes of a whole sequence. Ids without a string add nothing; hidden ids are left out before anything else."""
        shown = (
            (token_id, piece)
            for token_id in token_ids
            if token_id not in hidden and (piece := self.bytes_of(token_id)) is not None
        )
        first = next(shown, None)
        if first is None:
            return b""
        opening = self.opening(first[0]) if self.opening else None
        data = (first[1] if opening is None else opening) + b"".join(piece for _, piece in shown)
        spaces = len(data) - len(data.lstrip(b" "))
        return data[min(spaces, self.strip) :]


def partial_ids(table: ByteTable) -> list[int]:
    """Ids whose bytes are no whole characters: the ones that a decoder for single tokens destroys."""
    return [at for at, piece in enumerate(table.pieces) if piece is not None and not _is_utf8(piece)]


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
