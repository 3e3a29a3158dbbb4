"""From the `decoder` of a tokenizer.json to the bytes of one token.

A stored decoder is a chain of steps over the *list* of token strings. For every chain in use the result is the same
when each token is translated alone, apart from the first one and from spaces at the very start, so the chain becomes
a table. Where that is not true (a step that changes the last token, or works across tokens) the tokenizer is refused
by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from degarble.errors import EvidenceUnjudged
from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.stages import stages

Piece = str | bytes
"""A token on its way: a string until a step turns it into bytes."""
Step = Callable[[Piece, bool], Piece]
"""Piece and whether it is the first of the text -> piece."""

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
METASPACE = "\u2581"


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """What a decoder does to one token, and to the start of a text."""

    kind: str
    steps: tuple[Step, ...]
    strip: int = 0
    first_differs: bool = False

    def piece(self, text: str, *, first: bool = False) -> bytes:
        """Bytes of one vocabulary string."""
        value: Piece = text
        for step in self.steps:
            value = step(value, first)
        return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")

    def table(self, pieces: Sequence[str | None], verbatim: frozenset[int] = frozenset()) -> ByteTable:
        """The table of a vocabulary; `verbatim` ids stand for their own text."""

        def opening(token_id: int) -> bytes | None:
            text = pieces[token_id]
            return None if text is None or token_id in verbatim else self.piece(text, first=True)

        return ByteTable(
            pieces=[
                None if text is None else text.encode("utf-8", "surrogatepass") if at in verbatim else self.piece(text)
                for at, text in enumerate(pieces)
            ],
            strip=self.strip,
            opening=opening if self.first_differs else None,
        )


def read_pipeline(decoder: Mapping[str, Any] | None, file: str) -> Pipeline:
    """Translate a stored decoder. Raises EvidenceUnjudged for a chain that no table can express."""
    steps: list[Step] = []
    kinds: list[str] = []
    strip, fused = 0, False
    for stage in stages(decoder, "decoder"):
        kind, part = stage.kind, stage.settings
        kinds.append(kind)
        if kind == "Fuse":
            fused = True
        elif kind == "Strip" and fused:
            strip += _text_strip(part, file)
        elif fused:
            raise EvidenceUnjudged(f"{file}: decoder step {kind} after Fuse works on the whole text, not on tokens")
        elif kind in _STEPS:
            steps.append(_STEPS[kind](part, file))
            fused = kind == "ByteLevel"  # the library joins all tokens there
        else:
            raise EvidenceUnjudged(f"{file}: decoder {kind} is not known, or changes a token by what follows it")
    if not kinds:
        steps.append(_spaced)
    return Pipeline(
        kind=_kind(kinds),
        steps=tuple(steps),
        strip=strip,
        first_differs=not kinds or "Metaspace" in kinds or "WordPiece" in kinds,
    )


def _kind(kinds: Sequence[str]) -> str:
    for step, kind in (
        ("ByteLevel", "byte-level"),
        ("ByteFallback", "byte-fallback"),
        ("Metaspace", "metaspace"),
        ("WordPiece", "wordpiece"),
    ):
        if step in kinds:
            return kind
    return "plain"


def _text_strip(part: Mapping[str, Any], file: str) -> int:
    if part.get("content") != " " or part.get("stop") or not _is_count(part.get("start")):
        raise EvidenceUnjudged(
            f"{file}: decoder Strip of {part.get('content')!r}, stop {part.get('stop')}: unknown form"
        )
    return int(part["start"])


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _byte_level(part: Mapping[str, Any], file: str) -> Step:
    def step(piece: Piece, first: bool) -> Piece:
        data = letters_to_bytes(piece) if isinstance(piece, str) else piece
        return piece if data is None else data

    return step


def _byte_fallback(part: Mapping[str, Any], file: str) -> Step:
    def step(piece: Piece, first: bool) -> Piece:
        found = BYTE_TOKEN.match(piece) if isinstance(piece, str) else None
        return bytes.fromhex(found[1]) if found else piece

    return step


def _replace(part: Mapping[str, Any], file: str) -> Step:
    pattern, content = part.get("pattern"), part.get("content")
    if not isinstance(pattern, Mapping) or not isinstance(pattern.get("String"), str) or not isinstance(content, str):
        raise EvidenceUnjudged(f"{file}: decoder Replace of {pattern!r}: only a fixed string can be judged")
    old = pattern["String"]

    def step(piece: Piece, first: bool) -> Piece:
        return piece.replace(old, content) if isinstance(piece, str) else piece

    return step


def _strip_each(part: Mapping[str, Any], file: str) -> Step:
    letter, start, stop = part.get("content"), part.get("start"), part.get("stop")
    if not isinstance(letter, str) or not _is_count(start) or not _is_count(stop):
        raise EvidenceUnjudged(f"{file}: decoder Strip of {letter!r}, start {start}, stop {stop}: unknown form")

    def step(piece: Piece, first: bool) -> Piece:
        if isinstance(piece, bytes):
            return piece
        left = min(start, len(piece) - len(piece.lstrip(letter)))
        right = min(stop, len(piece) - len(piece.rstrip(letter)))
        return piece[left : max(left, len(piece) - right)]

    return step


def _metaspace(part: Mapping[str, Any], file: str) -> Step:
    letter = str(part.get("replacement") or METASPACE)
    keeps_first = part.get("prepend_scheme") == "never" or part.get("add_prefix_space") is False

    def step(piece: Piece, first: bool) -> Piece:
        if isinstance(piece, bytes):
            return piece
        return piece.replace(letter, "" if first and not keeps_first else " ")

    return step


def _wordpiece(part: Mapping[str, Any], file: str) -> Step:
    prefix, tidy = str(part.get("prefix") or "##"), part.get("cleanup") is not False

    def step(piece: Piece, first: bool) -> Piece:
        if isinstance(piece, bytes):
            return piece
        if not first:
            piece = piece.replace(prefix, "", 1) if piece.startswith(prefix) else " " + piece
        return _tidy(piece) if tidy else piece

    return step


def _tidy(text: str) -> str:
    """The spaces before punctuation that WordPiece decoders take out, token by token and in this order."""
    for old, new in _TIDY:
        text = text.replace(old, new)
    return text


_TIDY = (
    *((" " + mark, mark) for mark in ".?!,"),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def _spaced(piece: Piece, first: bool) -> Piece:
    """No decoder at all: tokenizers puts a space between any two tokens."""
    return piece if first or isinstance(piece, bytes) else " " + piece


_STEPS: Mapping[str, Callable[[Mapping[str, Any], str], Step]] = {
    "ByteLevel": _byte_level,
    "ByteFallback": _byte_fallback,
    "Replace": _replace,
    "Strip": _strip_each,
    "Metaspace": _metaspace,
    "WordPiece": _wordpiece,
}
