"""Text that is safe to encode or to show: one policy, whole texts or chunks, and a report of every change.

    text ──► surrogate pairs ──► harmful characters ──► at most 30 marks ──► NFC ──► special-token text ──► text

The order matters. Characters are dropped before normalisation, since a mark may then meet a letter; special tokens
are looked for after it, since U+212A, the Kelvin sign, becomes a K. Chunked and whole give the same text (neighbouring
changes may be reported as one or as two), and a second pass changes nothing.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from degarble.errors import UsageError
from degarble.tokenizer.composed_form import ComposedForm, MarkLimit, tables
from degarble.tokenizer.harmful_characters import HarmfulCharacters, patterns
from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy, SanitizeRejected
from degarble.tokenizer.special_texts import SpecialText, SpecialTexts, finder_of
from degarble.tokenizer.surrogates import SurrogatePairs
from degarble.tokenizer.text_stage import Edit, Report, TextStage

MAX_CHANGES = 1000
"""Changes that are listed; all are counted."""


@dataclass(frozen=True, slots=True)
class Change:
    """One place where text was changed, or special-token text was seen. Positions are code points of the input."""

    kind: str
    start: int
    end: int
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """Clean text and what was done to it."""

    text: str
    changes: tuple[Change, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Kind -> number of changes."""
    special_texts: tuple[SpecialText, ...] = ()
    """Special-token text that was kept: to be encoded as text."""


class TokenSanitizer:
    """A policy, prepared once; used for any number of texts."""

    def __init__(self, policy: SanitizePolicy | None = None) -> None:
        self.policy = policy or SanitizePolicy()
        self._ascii, self._suspects, _ = patterns(self.policy)
        self._specials = finder_of(self.policy.special_tokens) if self.policy.special_tokens else None

    def sanitize(self, text: str) -> Sanitized:
        """Clean one text. Raises SanitizeRejected if the policy refuses it."""
        if self._is_clean(text):
            return Sanitized(text=text)
        stream = self.stream()
        out = stream.finish(text)
        return Sanitized(
            text=out,
            changes=stream.changes,
            counts=dict(stream.counts),
            special_texts=tuple(stream.special_texts),
        )

    def _is_clean(self, text: str) -> bool:
        """Whether there is nothing to do, seen without looking at single characters; most texts are."""
        is_ascii = text.isascii()
        if (self._ascii if is_ascii else self._suspects).search(text):
            return False
        if self._specials is not None and next(self._specials.find(text, len(text)), None):
            return False
        if is_ascii or self.policy.nfc == "keep":
            return True
        return unicodedata.is_normalized("NFC", text) and not tables().maybe_long.search(text)

    def stream(self) -> SanitizerStream:
        """Start one text that arrives in chunks."""
        return SanitizerStream(self.policy)


class SanitizerStream:
    """One text in chunks. Holds back one character, mostly; never more than 31 and the longest special token."""

    def __init__(self, policy: SanitizePolicy) -> None:
        self.counts: Counter[str] = Counter()
        self._changes: list[Change] = []
        self._stages: list[TextStage] = []
        self._add(SurrogatePairs(self._reporter()))
        self._add(HarmfulCharacters(policy, self._reporter()))
        if policy.nfc != "keep":
            self._add(MarkLimit(self._reporter(), reject=policy.nfc == "reject"))
            self._add(ComposedForm(self._reporter(), reject=policy.nfc == "reject"))
        self._specials = SpecialTexts(policy, self._reporter()) if policy.special_tokens else None
        if self._specials is not None:
            self._add(self._specials)
        self._is_finished = False

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was changed so far, in the order of the text."""
        return tuple(sorted(self._changes, key=lambda change: (change.start, change.end)))

    @property
    def special_texts(self) -> list[SpecialText]:
        """Special-token text so far that was kept, at its place in the text given out."""
        return self._specials.found if self._specials else []

    @property
    def num_held(self) -> int:
        """Characters that wait for what comes next."""
        return sum(stage.num_held for stage in self._stages)

    def push(self, text: str) -> str:
        """Take a chunk, return the clean text that is certain now. Raises SanitizeRejected."""
        self._check()
        try:
            for stage in self._stages:
                text = stage.push(text)
        except SanitizeRejected as rejected:
            raise self._placed(rejected, stage) from None
        for stage in self._stages:
            stage.forget()
        return text

    def finish(self, text: str = "") -> str:
        """Take the last chunk, return the rest."""
        self._check()
        self._is_finished = True
        try:
            for stage in self._stages:
                text = stage.finish(text)
        except SanitizeRejected as rejected:
            raise self._placed(rejected, stage) from None
        return text

    def _check(self) -> None:
        if self._is_finished:
            raise UsageError("this text was finished; start another stream")

    def _add(self, stage: TextStage) -> None:
        self._stages.append(stage)

    def _reporter(self) -> Report:
        """For the stage that is added next: its positions go back through all stages before it."""
        before = len(self._stages)

        def report(text: str, taken: int, edits: Sequence[Edit]) -> None:
            self.counts.update([kind for _, _, _, kind in edits])
            for start, end, new, kind in edits[: MAX_CHANGES - len(self._changes)]:
                first = self._origin(taken + start, before)
                last = self._origin(taken + end - 1, before) + 1
                self._changes.append(Change(kind, first, last, text[start:end], new))

        return report

    def _origin(self, position: int, before: int) -> int:
        for stage in reversed(self._stages[:before]):
            position = stage.position_of(position)
        return position

    def _placed(self, rejected: SanitizeRejected, stage: TextStage) -> SanitizeRejected:
        rejected.args = (str(rejected).split(": ", 1)[1],)
        position = self._origin(rejected.position, self._stages.index(stage))
        rejected.args = (f"position {position}: {rejected.args[0]}",)
        rejected.position = position
        return rejected


def sanitize(text: str, policy: SanitizePolicy | None = None) -> Sanitized:
    """Clean one text; keep a TokenSanitizer for more than one."""
    return TokenSanitizer(policy).sanitize(text)


__all__ = [
    "Change",
    "Kind",
    "SanitizePolicy",
    "SanitizeRejected",
    "Sanitized",
    "SanitizerStream",
    "TokenSanitizer",
    "sanitize",
]
