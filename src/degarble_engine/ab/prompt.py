"""What both sides are asked, and what is known of a good answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from degarble.errors import UsageError
from degarble_engine.numerics.tokens import read_text_file

MAX_BYTES = 1 << 26
MAX_PROMPTS = 10_000
MAX_PATTERN = 1_000
MAX_ANSWER = 20_000
"""Characters of an answer that a pattern is tried on."""
ANSWERS = ("reference", "references", "answer", "expected", "completion")
"""Fields that hold a good answer, under the names of the field's data sets."""
SHOWN = 60


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    number: int
    """Of its line, from 1."""
    text: str
    """The plain text; of a chat, the contents of its messages, one a line."""
    messages: tuple[Mapping[str, str], ...] = ()
    """A chat, for which the template of each side is used."""
    references: tuple[str, ...] = ()
    """Good answers."""
    pattern: str | None = None
    """A regular expression that a passing answer contains."""
    must_be_json: bool = False


def read_prompts(path: str) -> list[Prompt]:
    """A text a line, or JSON lines: `prompt`, `text` or `messages`; `reference(s)`, `answer`, `expected`; `pattern`; `json`.

    Raises UsageError with the line and what it expected there.
    """
    lines = read_text_file("--prompts", path, MAX_BYTES).splitlines()
    found = list(_prompts(path, lines))
    if not found:
        raise UsageError(f"--prompts {path}: no prompt in it")
    if len(found) > MAX_PROMPTS:
        raise UsageError(f"--prompts {path}: {len(found)} prompts, {MAX_PROMPTS} are the most")
    return found


def _prompts(path: str, lines: list[str]) -> Iterator[Prompt]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"--prompts {path}: line {number}"
        if not line.lstrip().startswith("{"):
            yield Prompt(number=number, text=line)
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{place}: expected JSON, found {error}") from None
        yield _prompt(place, number, row)


def _prompt(place: str, number: int, row: Mapping[str, Any]) -> Prompt:
    messages = _messages(place, row.get("messages"))
    text = row.get("prompt") or row.get("text") or "\n".join(one["content"] for one in messages)
    if not isinstance(text, str) or not text:
        raise UsageError(f"{place}: expected `prompt`, `text` or `messages`, found {', '.join(map(str, row))[:SHOWN]}")
    return Prompt(
        number=number,
        text=text,
        messages=messages,
        references=tuple(_references(place, row)),
        pattern=_pattern(place, row.get("pattern")),
        must_be_json=row.get("json") is True,
    )


def _messages(place: str, value: Any) -> tuple[Mapping[str, str], ...]:
    if value is None:
        return ()
    is_chat = isinstance(value, list) and all(
        isinstance(one, dict) and isinstance(one.get("role"), str) and isinstance(one.get("content"), str)
        for one in value
    )
    if not is_chat or not value:
        raise UsageError(f"{place}: expected `messages` with a role and a content of text each, found {value!r:.60}")
    return tuple({"role": one["role"], "content": one["content"]} for one in value)


def _references(place: str, row: Mapping[str, Any]) -> Iterator[str]:
    for name in ANSWERS:
        value = row.get(name)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) and one for one in values):
            raise UsageError(f"{place}: expected text under {name!r}, found {value!r:.60}")
        yield from values


def _pattern(place: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str) or len(value) > MAX_PATTERN:
            raise re.error(f"not a text of at most {MAX_PATTERN} characters")
        re.compile(value)
    except re.error as error:
        raise UsageError(f"{place}: expected a regular expression under 'pattern', found one with: {error}") from None
    return value
