"""The merges of a BPE vocabulary: which two pieces become one, the most frequent pair first.

Two spellings are in use, `"a b"` and `["a", "b"]`. A list has up to half a million of them and is most of a
tokenizer.json, while decoding text needs none; so they stay as they were stored until somebody asks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

Rank = Callable[[str, str], int | None]
"""Left and right piece -> place of their merge, the lowest being done first; None if they do not merge."""
DIGEST_BYTES = 16
_OPENS_WITH_TEXT = re.compile(rb'\s*\[\s*"')


class Merges:
    """Stored merges, read when they are first looked at. What cannot be read leaves them empty, with a `problem`."""

    def __init__(self, raw: bytes = b"[]", listed: Sequence[Any] | None = None) -> None:
        """Either JSON as it stands in the file, or the list of a GGUF key."""
        self.raw = raw
        self._listed = listed

    @cached_property
    def digest(self) -> str:
        """Of the bytes as stored: equal digests mean equal merges, other ones may be another spelling."""
        raw = self.raw if self._listed is None else "\n".join(map(str, self._listed)).encode("utf-8", "surrogateescape")
        return hashlib.blake2b(raw, digest_size=DIGEST_BYTES).hexdigest()

    @property
    def nbytes(self) -> int:
        """Bytes as stored in JSON; 0 for a list that is in memory anyway."""
        return len(self.raw)

    @property
    def problem(self) -> str | None:
        """Why nothing could be read; None if all is well."""
        return self._read[1]

    @property
    def stored(self) -> Sequence[str] | Sequence[tuple[str, str]]:
        """As written: `"a b"`, or pairs."""
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[Sequence[Any], str | None]:
        if self._listed is not None:
            if set(map(type, self._listed)) <= {str}:
                return self._listed, None
            return [], "a list of other values than strings"
        is_text = _OPENS_WITH_TEXT.match(self.raw) is not None
        try:
            stored: Any = msgspec.json.decode(self.raw, type=list[str] if is_text else list[tuple[str, str]])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return [], str(error)
        return stored, None

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Left and right piece of each; a text without a space has an empty right one."""
        return [_halves(merge) if isinstance(merge, str) else merge for merge in self.stored]

    @cached_property
    def products(self) -> list[str]:
        """The piece that each makes, in the order of ranks."""
        stored: Sequence[Any] = self.stored
        if not stored or not isinstance(stored[0], str):
            return list(map("".join, stored))
        if any(text.startswith(" ") for text in stored):
            return list(map("".join, self.pairs))
        return [text.replace(" ", "", 1) for text in stored]

    @cached_property
    def parts(self) -> frozenset[str]:
        """Every piece that some merge takes."""
        stored: Sequence[Any] = self.stored
        if not stored or not isinstance(stored[0], str):
            return frozenset(chain.from_iterable(stored))
        parts = " ".join(stored).split(" ")
        return frozenset(parts if len(parts) == 2 * len(stored) else chain.from_iterable(self.pairs))

    @cached_property
    def rank(self) -> Rank:
        """Place of a merge by its two pieces."""
        stored: Sequence[Any] = self.stored
        ranks = dict(zip(stored, range(len(stored)), strict=True))
        if stored and isinstance(stored[0], str):
            return lambda left, right: ranks.get(f"{left} {right}")
        return lambda left, right: ranks.get((left, right))


def _halves(text: str) -> tuple[str, str]:
    """The first piece may itself begin with a space, so the space that separates is looked for behind it."""
    at = text.find(" ", 1)
    return (text, "") if at < 0 else (text[:at], text[at + 1 :])
