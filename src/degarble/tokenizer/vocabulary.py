"""A vocabulary as stored, laid out by id; what contradicts itself is noted and read past."""

from __future__ import annotations

from collections.abc import Iterable

from degarble.errors import MalformedFile

MAX_TOKEN_IDS = 1 << 22
"""Sixteen times the largest vocabulary in use; an id beyond it is damage, not a token."""
MAX_PROBLEMS = 20


def by_id(entries: Iterable[tuple[str, object]], file: str, place: str) -> tuple[list[str | None], list[str]]:
    """Strings laid out by id, and the ids that were given twice. Raises MalformedFile for an id that is none."""
    pairs = list(entries)
    for text, token_id in pairs:
        if type(token_id) is not int or not 0 <= token_id < MAX_TOKEN_IDS:
            raise MalformedFile(
                file, f"{place}[{text!r:.80}]", f"an id from 0 to {MAX_TOKEN_IDS - 1}", f"{token_id!r:.80}"
            )
    pieces: list[str | None] = [None] * (max((at for _, at in pairs if isinstance(at, int)), default=-1) + 1)
    problems: list[str] = []
    for text, token_id in pairs:
        assert isinstance(token_id, int)
        taken = pieces[token_id]
        if taken is None:
            pieces[token_id] = text
        elif taken != text and len(problems) < MAX_PROBLEMS:
            problems.append(f"{file}: {place}: id {token_id} is both {taken!r} and {text!r}; the first is used")
    return pieces, problems
