"""Many patterns over many names at once, bounded in time.

A skip list has hundreds of entries, a mixture of experts 46,000 module names, and the product has to stay under a
third of a second. Nearly all entries are plain dotted paths or such paths with `.*` in front; those are merged into
one regular expression that shares their prefixes, so that a name is compared once instead of once an entry. What is
left (real regular expressions) is matched one by one by the `regex` module, which can be stopped: a pattern that
backtracks without end raises UnusableEntry instead of hanging the check.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import regex  # type: ignore[import-untyped, unused-ignore]

MAX_ENTRY_CHARS = 400
"""Longer than any module path; bounds the work that one entry can cause."""
MAX_MATCH_SECONDS = 1.0
"""One pattern on one name: healthy patterns take microseconds."""
MAX_TOTAL_SECONDS = 20.0
"""For all leftover patterns of a set over all names, against the pattern that is merely slow each time."""

_PLAIN = re.compile(r"(?P<lead>\.\*)?(?P<body>(?:[A-Za-z0-9_-]|\\?\.)*)(?P<tail>\$|\.\*|[A-Za-z0-9_-]\*)?\Z")
_ALONE = re.compile(r"\\[0-9gk]|\(\?(?![:>]|[aimsx]+:)")
"""References and flags: such a pattern changes its meaning, or that of others, inside a larger one."""
_ATOM = re.compile(r"\\?.", re.DOTALL)
_END = ""

Trie = dict[str, "Trie"]
Predicate = Callable[[str], bool]


class UnusableEntry(ValueError):
    """An entry of a skip list that no engine can use, or that takes too long to match."""

    def __init__(self, entry: object, reason: str) -> None:
        super().__init__(f"skip list entry {str(entry)[:MAX_ENTRY_CHARS]!r}: {reason}")
        self.entry = entry
        self.reason = reason


class Pattern(msgspec.Struct, frozen=True):
    """A regular expression, and the entry it was made from, for messages."""

    entry: str
    expression: str


def compile_patterns(patterns: Sequence[Pattern], tail: str = "") -> Predicate:
    """Whether any of `patterns`, followed by `tail`, matches a name from its start.

    Raises UnusableEntry for an invalid pattern; the predicate raises it for one that takes too long.
    """
    plain: dict[str, list[str]] = {"": [], ".*": []}
    leftover: list[Pattern] = []
    for pattern in patterns:
        if found := _PLAIN.match(pattern.expression):
            plain[found["lead"] or ""].append(found["body"] + (found["tail"] or ""))
        else:
            leftover.append(pattern)
    options = [lead + _merge(bodies, prune=not tail) for lead, bodies in plain.items() if bodies]
    merged = re.compile(f"(?:{'|'.join(options)}){tail}").match if options else None
    slow = _Stoppable(leftover, tail) if leftover else None
    return lambda name: bool(merged and merged(name)) or bool(slow and slow.matches(name))


def contains_any(literals: Sequence[str]) -> Predicate:
    """Whether any of `literals` occurs in a name, as `any(literal in name)` would say, in one scan."""
    if not literals:
        return lambda name: False
    search = re.compile(_merge([re.escape(literal) for literal in literals], prune=True)).search
    return lambda name: search(name) is not None


def _merge(bodies: Sequence[str], *, prune: bool) -> str:
    """One expression for all `bodies`, sharing prefixes. `prune` drops what follows a complete body."""
    trie: Trie = {}
    for body in bodies:
        node = trie
        for atom in _atoms(body):
            node = node.setdefault(atom, {})
        node[_END] = {}
    try:
        merged = _emit(trie, prune)
        re.compile(merged)
    except RecursionError:
        return f"(?:{'|'.join(sorted(set(bodies), key=len))})"
    return merged


def _atoms(body: str) -> list[str]:
    """Split into single characters, keeping an escape together, and a closing star with what it repeats."""
    if body.endswith("*") and not body.endswith("\\*"):
        return [*_ATOM.findall(body[:-2]), body[-2:]]
    return _ATOM.findall(body)


def _emit(node: Trie, prune: bool) -> str:
    if _END in node and (prune or len(node) == 1):
        return ""
    options = [atom + _emit(child, prune) for atom, child in node.items() if atom != _END]
    body = options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"
    return f"(?:{body})?" if _END in node else body


class _Stoppable:
    """Leftover patterns: those that can be are tried together, the slow one is then looked for alone."""

    def __init__(self, patterns: Sequence[Pattern], tail: str) -> None:
        self._alone = [(pattern.entry, _compile(pattern, tail)) for pattern in patterns]
        joined = [pattern.expression for pattern in patterns if not _ALONE.search(pattern.expression)]
        self._tried = [
            one for one, pattern in zip(self._alone, patterns, strict=True) if _ALONE.search(pattern.expression)
        ]
        if joined:
            expression = "|".join(f"(?:{one})" for one in joined)
            import regex

            self._tried.append(("", regex.compile(f"(?:{expression}){tail}")))
        self._spent_seconds = 0.0

    def matches(self, name: str) -> bool:
        """Whether any pattern matches. Raises UnusableEntry for the one that ran past its time."""
        begin = time.perf_counter()
        try:
            matched = any(pattern.match(name, timeout=MAX_MATCH_SECONDS) for _, pattern in self._tried)
        except TimeoutError:
            raise UnusableEntry(self._slowest(name), f"needs more than {MAX_MATCH_SECONDS:g} s for one name") from None
        self._spent_seconds += time.perf_counter() - begin
        if self._spent_seconds > MAX_TOTAL_SECONDS:
            raise UnusableEntry(self._slowest(name), f"needs more than {MAX_TOTAL_SECONDS:g} s for all names")
        return matched

    def _slowest(self, name: str) -> str:
        """The entry to name: the one that is slowest on the current name."""
        return max((_seconds(pattern, name), entry) for entry, pattern in self._alone)[1]


def _seconds(pattern: regex.Pattern[str], name: str) -> float:
    begin = time.perf_counter()
    with suppress(TimeoutError):
        pattern.match(name, timeout=MAX_MATCH_SECONDS)
    return time.perf_counter() - begin


def _compile(pattern: Pattern, tail: str) -> regex.Pattern[str]:
    """Compile as the engines do (`re`), then for matching (`regex`, which can be stopped)."""
    import regex  # most lists hold plain names alone, and importing it takes longer than reading them

    try:
        re.compile(pattern.expression)
        return regex.compile(f"(?:{pattern.expression}){tail}")
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        raise UnusableEntry(pattern.entry, f"not a regular expression: {error}") from None


def check_entry(entry: object) -> None:
    """Raise UnusableEntry for what no engine could compare with a name."""
    if not isinstance(entry, str):
        raise UnusableEntry(entry, f"expected a string, found {type(entry).__name__}")
    if len(entry) > MAX_ENTRY_CHARS:
        raise UnusableEntry(entry, f"expected at most {MAX_ENTRY_CHARS} characters, found {len(entry)}")
