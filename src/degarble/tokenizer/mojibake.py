"""Text that was decoded wrongly, and by which mistake. Each kind has its own trace, so the trace names the mistake.

| seen | mistake |
|---|---|
| U+FFFD that the ids do not spell | tokens decoded one by one, or an end cut off |
| `Ġ` `Ċ` between words | a byte-level vocabulary shown as stored |
| `<0xE4>` | byte tokens shown as stored |
| U+2581 between words | a sentencepiece vocabulary shown as stored |
| `Ã©`, `ä½ ` | UTF-8 read as Latin-1 or Windows-1252 |
"""

from __future__ import annotations

import re

import msgspec

from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

_TRACES = {
    "replacement-char": re.compile(f"{REPLACEMENT_CHAR}+"),
    "byte-token": re.compile(r"(?:<0x[0-9A-Fa-f]{2}>)+"),
    "metaspace": re.compile("\u2581(?=\\w)"),
    "byte-alphabet": re.compile("[\u0120\u010a](?=[!-~\u00a1-\u017f])[!-~\u00a1-\u017f]*"),
    "double-encoding": re.compile("(?:[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u2122]{1,3})+"),
}
MAX_TRACES = 1000


class Trace(msgspec.Struct, frozen=True):
    """One stretch of text that shows a mistake; half-open, in code points."""

    kind: str
    start: int
    end: int
    text: str
    likely: str | None = None
    """What it was meant to be, where that can be worked out."""


def find_mojibake(text: str) -> list[Trace]:
    """Traces in a text, in its order. A model may write any of them on purpose: a trace is evidence, not proof."""
    found: list[Trace] = []
    for kind, pattern in _TRACES.items():
        for match in pattern.finditer(text):
            likely = _likely(kind, match[0])
            if kind != "double-encoding" or likely is not None:
                found.append(Trace(kind, match.start(), match.end(), match[0], likely))
            if len(found) >= MAX_TRACES:
                break
    return sorted(found, key=lambda trace: (trace.start, trace.kind))


def num_spurious(shown: str, true: str) -> int:
    """U+FFFD that a reader saw and the true text does not have."""
    return max(0, shown.count(REPLACEMENT_CHAR) - true.count(REPLACEMENT_CHAR))


def _likely(kind: str, text: str) -> str | None:
    if kind == "byte-token":
        return bytes.fromhex(text.replace("<0x", "").replace(">", "")).decode("utf-8", "replace")
    if kind == "metaspace":
        return " "
    if kind == "byte-alphabet":
        data = letters_to_bytes(text)
        return None if data is None else data.decode("utf-8", "replace")
    return _decode_again(text) if kind == "double-encoding" else None


def _decode_again(text: str) -> str | None:
    """Undo one wrong decoding. None if the bytes are no UTF-8, and so the text was probably meant."""
    for encoding in ("latin-1", "cp1252"):
        try:
            return text.encode(encoding).decode()
        except UnicodeError:
            continue
    return None
