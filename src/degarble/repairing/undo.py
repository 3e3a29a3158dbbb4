"""Taking a repair back: where each byte of the original lies in the repaired copy, and the bytes that it lost.

A repaired file is a rope over the original's bytes, so the inverse is a rope over the repaired ones. What no file of the
copy holds any more is kept in `degarble-fix.undo` beside it:

    original file      |----a----|--lost--|------b------|
    repaired file      |header|----a----|new|------b------|
    degarble-fix.undo  |--lost--|
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from degarble.checkpoint.rope import RopeSource, Segment

UNDO_FILE = "degarble-fix.undo"
RECORD_FILE = "degarble-fix.json"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, start + length) of a file of the repaired copy."""

    file: str
    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse:
    """How to get the original back."""

    files: Mapping[str, tuple[Piece, ...]]
    """Original file -> its bytes in the copy, for files that changed or are gone."""
    added: tuple[str, ...]
    """Files that the original does not have."""
    undo: tuple[Segment, ...]
    """What `degarble-fix.undo` has to hold, as ranges of the original."""


def invert(repaired: RopeSource) -> Inverse:
    """The inverse of an edited view. An earlier undo file stays at the beginning of the new one."""
    original = repaired.base.files()
    changed = [name for name in original if name not in repaired.ropes or not repaired.is_unchanged(name)]
    homes = _homes(repaired, set(changed))
    earlier = original.get(UNDO_FILE, 0)
    undo = [Segment(earlier, None, UNDO_FILE, 0)] if earlier else []
    files: dict[str, tuple[Piece, ...]] = {}
    cursor = earlier
    for name in changed:
        pieces: list[Piece] = []
        for start, length, home in _covered(homes.get(name, []), original[name]):
            if home is None:
                undo.append(Segment(length, None, name, start))
                home = Piece(UNDO_FILE, cursor, length)
                cursor += length
            pieces.append(home)
        files[name] = tuple(pieces)
    if earlier and cursor > earlier:
        files[UNDO_FILE] = (Piece(UNDO_FILE, 0, earlier),)
    added = tuple(name for name in repaired.ropes if name not in original)
    return Inverse(files=files, added=added, undo=tuple(undo) if cursor > earlier else ())


def _homes(repaired: RopeSource, wanted: set[str]) -> dict[str, list[tuple[int, Piece]]]:
    """Original file -> (start there, place in the copy) of every range that the copy holds, in order."""
    found: dict[str, list[tuple[int, Piece]]] = {}
    for name, rope in repaired.ropes.items():
        cursor = 0
        for segment in rope:
            if segment.data is None and segment.origin is None and segment.file in wanted and segment.length:
                piece = Piece(name, cursor, segment.length)
                found.setdefault(segment.file, []).append((segment.start, piece))
            cursor += segment.length
    return {name: sorted(places, key=lambda place: (place[0], -place[1].length)) for name, places in found.items()}


def _covered(places: Sequence[tuple[int, Piece]], size: int) -> Iterator[tuple[int, int, Piece | None]]:
    """(start, length, place in the copy or None) over the whole original file, without overlap."""
    cursor = 0
    for start, piece in places:
        skipped = max(cursor - start, 0)
        if skipped >= piece.length:
            continue
        start += skipped
        if start > cursor:
            yield cursor, start - cursor, None
        length = piece.length - skipped
        yield start, length, Piece(piece.file, piece.start + skipped, length)
        cursor = start + length
    if cursor < size:
        yield cursor, size - cursor, None
