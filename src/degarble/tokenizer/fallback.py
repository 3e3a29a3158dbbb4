"""Decoding what cannot be decoded: invalid bytes and ids without a string, by a policy, counted, never a crash.

`bytes(ids).decode()` is sometimes offered as a fallback. It is none: an id is a row of the vocabulary, not a byte.
`bytes` refuses any id above 255, which is nearly all of them, and for those below it gives the byte of that *number*,
while id 0 of DeepSeek-V3 is its begin-of-sentence and id 65 of most vocabularies is not `A`. The bytes of an id are in
the byte table, and only there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from degarble.errors import DegarbleError
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR, decode_available


class FallbackPolicy(StrEnum):
    """What becomes of bytes that are no character and of ids that have no string."""

    EXACT = "exact"
    """Keep every byte: invalid ones as lone surrogates (`text.encode("utf-8", "surrogateescape")` gives them back). For
    inspection; such text must not leave the process."""
    REPLACE = "replace"
    """One U+FFFD for each maximal invalid part, and one for an id without a string."""
    HEX = "hex"
    """`<0xE4>` for a byte, `<id 151700>` for an id: for reports, where a reader wants to see what it was."""
    DROP = "drop"
    """Leave them out."""
    RAISE = "raise"
    """Stop at the first one with UndecodableIds."""


class UndecodableIds(DegarbleError):
    """Ids that are no text; `position` is the place in the sequence where it became certain."""

    def __init__(self, position: int, found: str) -> None:
        super().__init__(f"position {position}: {found}")
        self.position = position


class FallbackText(msgspec.Struct, frozen=True, kw_only=True):
    """Text, and what had to be done to get it."""

    text: str
    num_invalid: int
    """Invalid parts, counted as `replace` counts them."""
    num_without_text: int
    """Ids without a string."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing had to be done."""
        return not self.num_invalid and not self.num_without_text


def decode_with_fallback(
    table: ByteTable,
    token_ids: Iterable[int],
    policy: FallbackPolicy | str = FallbackPolicy.REPLACE,
    *,
    hidden: frozenset[int] = frozenset(),
) -> FallbackText:
    """Decode a whole sequence by a policy. Raises UndecodableIds under `raise` only, and nothing else for any ids."""
    policy = FallbackPolicy(policy)
    ids = list(token_ids)
    parts: list[str] = []
    num_invalid = num_without = 0
    for first, last, token_id in _runs(table, ids, hidden):
        data = table.join(ids[first:last], hidden) if first == 0 else _middle(table, ids[first:last], hidden)
        text, invalid = _decode_run(data, policy)
        if invalid and policy is FallbackPolicy.RAISE:
            raise UndecodableIds(_position(table, ids, first, last, hidden), "bytes that are no UTF-8")
        num_invalid += invalid
        parts.append(text)
        if token_id is not None:
            if policy is FallbackPolicy.RAISE:
                raise UndecodableIds(last, f"id {token_id} has no string")
            num_without += 1
            parts.append(_absent(token_id, policy))
    return FallbackText(text="".join(parts), num_invalid=num_invalid, num_without_text=num_without)


def _runs(table: ByteTable, ids: list[int], hidden: frozenset[int]) -> Iterator[tuple[int, int, int | None]]:
    """Half-open runs of ids with strings, and the id without one that ends each but the last."""
    first = 0
    for at, token_id in enumerate(ids):
        if token_id not in hidden and table.bytes_of(token_id) is None:
            yield first, at, token_id
            first = at + 1
    yield first, len(ids), None


def _middle(table: ByteTable, ids: list[int], hidden: frozenset[int]) -> bytes:
    return b"".join(piece for at in ids if at not in hidden and (piece := table.bytes_of(at)) is not None)


def _decode_run(data: bytes, policy: FallbackPolicy) -> tuple[str, int]:
    """Text of one run of bytes, and how many invalid parts it had."""
    try:
        return data.decode(), 0
    except UnicodeDecodeError:
        pass
    parts: list[str] = []
    invalid = at = 0
    while at < len(data):
        try:
            parts.append(data[at:].decode())
            break
        except UnicodeDecodeError as error:
            parts.append(data[at : at + error.start].decode())
            parts.append(_invalid(data[at + error.start : at + error.end], policy))
            invalid += 1
            at += error.end
    return "".join(parts), invalid


def _invalid(part: bytes, policy: FallbackPolicy) -> str:
    if policy is FallbackPolicy.EXACT:
        return part.decode("utf-8", "surrogateescape")
    if policy is FallbackPolicy.HEX:
        return "".join(f"<0x{byte:02X}>" for byte in part)
    return "" if policy is FallbackPolicy.DROP else REPLACEMENT_CHAR


def _absent(token_id: int, policy: FallbackPolicy) -> str:
    if policy is FallbackPolicy.HEX:
        return f"<id {token_id}>"
    return REPLACEMENT_CHAR if policy is FallbackPolicy.REPLACE else ""


def _position(table: ByteTable, ids: list[int], first: int, last: int, hidden: frozenset[int]) -> int:
    """Place of the first id after which the run cannot become text any more."""
    pending = b""
    for at in range(first, last):
        if ids[at] in hidden:
            continue
        text, pending = decode_available(pending + (table.bytes_of(ids[at]) or b""))
        piece_is_replacement = (table.bytes_of(ids[at]) or b"").decode("utf-8", "ignore").count(REPLACEMENT_CHAR)
        if text.count(REPLACEMENT_CHAR) > piece_is_replacement:
            return at
    return last
