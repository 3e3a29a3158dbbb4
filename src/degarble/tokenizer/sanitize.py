"""Text that is safe to encode or to show: one policy, whole texts or chunks, and a report of every change.

    text ──► surrogate pairs ──► harmful characters ──► at most 30 marks ──► NFC ──► special-token text ──► text

The order matters. Characters are dropped before normalisation, since a mark may then meet a letter; special tokens
are looked for after it, since U+212A, the Kelvin sign, becomes a K. Chunked and whole give the same text (neighbouring
changes may be reported as one or as two), and a second pass changes nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from degarble.errors import UsageError
from degarble.tokenizer.change_log import MAX_CHANGES, Change, ChangeLog
from degarble.tokenizer.character_groups import groups_of
from degarble.tokenizer.composed_form import ComposedForm
from degarble.tokenizer.edits import PositionMap
from degarble.tokenizer.harmful_characters import HarmfulCharacters
from degarble.tokenizer.mark_limit import MarkLimit, may_have_too_many_marks
from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy, SanitizeRejected
from degarble.tokenizer.special_texts import SpecialText, SpecialTexts, finder_of
from degarble.tokenizer.surrogates import SurrogatePairs
from degarble.tokenizer.text_stage import TextStage

BLOCK_CHARS = 1 << 16
"""Longer texts go through in pieces: enough that setting up arrays is nothing, and few enough for a cache."""
MAX_REMEMBERED_EDITS = 4096
"""Of one stage, besides those of one block."""


@dataclass(frozen=True, kw_only=True)
class Sanitized:
    """Clean text and what was done to it."""

    text: str
    counts: Mapping[str, int] = field(default_factory=dict)
    """Kind -> number of changes."""
    _done: tuple[str, SanitizerStream] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """As those of a stream. Found in a second pass, on first use: most callers look at the counts at most."""
        if self._done is None:
            return ()
        text, done = self._done
        stream = SanitizerStream(done.policy)
        stream.finish(text)
        return stream.changes

    @cached_property
    def special_texts(self) -> tuple[SpecialText, ...]:
        """Special-token text that was kept: to be encoded as text."""
        return tuple(self._done[1].special_texts) if self._done else ()


class TokenSanitizer:
    """A policy, prepared once; used for any number of texts."""

    def __init__(self, policy: SanitizePolicy | None = None) -> None:
        self.policy = policy or SanitizePolicy()
        self._groups = groups_of(self.policy)
        self._specials = finder_of(self.policy.special_tokens)

    def sanitize(self, text: str) -> Sanitized:
        """Clean one text. Raises SanitizeRejected if the policy refuses it."""
        if self._is_clean_at_a_glance(text):
            return Sanitized(text=text)
        stream = SanitizerStream(self.policy, num_listed=0)
        out = stream.finish(text)
        return Sanitized(text=out, counts=dict(stream.counts), _done=(text, stream))

    def _is_clean_at_a_glance(self, text: str) -> bool:
        """Whether nothing is to be done in ASCII or in a short text: most are clean, and a stream costs more."""
        if not self._groups.is_clean_at_a_glance(text) or self._specials.is_in(text):
            return False
        if text.isascii() or self.policy.nfc == "keep":
            return True
        return unicodedata.is_normalized("NFC", text) and not may_have_too_many_marks(text)

    def stream(self) -> SanitizerStream:
        """Start one text that arrives in chunks."""
        return SanitizerStream(self.policy)


class SanitizerStream:
    """One text in chunks. Holds back one character, mostly; never more than 31 and the longest special token."""

    def __init__(self, policy: SanitizePolicy, *, num_listed: int = MAX_CHANGES) -> None:
        self.policy = policy
        self._log = ChangeLog(num_listed, may_reject=policy.may_reject)
        self._stages: list[TextStage] = []
        for stage in _stages_of(policy):
            self._stages.append(stage(policy, self._log, self._stages))
        self._is_finished = False

    @property
    def counts(self) -> Mapping[str, int]:
        """Kind -> number of changes so far."""
        return self._log.counts

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was changed so far, in the order of the text; the first thousand.

        A change that spans others comes before them. To make the output, leave out those that begin inside another, and
        put the rest into the input.
        """
        return self._log.changes

    @property
    def special_texts(self) -> list[SpecialText]:
        """Special-token text so far that was kept, at its place in the text given out."""
        last = self._stages[-1]
        return last.found if isinstance(last, SpecialTexts) else []

    @property
    def num_held(self) -> int:
        """Characters that wait for what comes next."""
        return sum(stage.num_held for stage in self._stages)

    def push(self, text: str) -> str:
        """Take a chunk, return the clean text that is certain now. Raises SanitizeRejected."""
        self._check()
        return "".join([self._pass(block) for block in _blocks(text)])

    def finish(self, text: str = "") -> str:
        """Take the last chunk, return the rest."""
        self._check()
        self._is_finished = True
        *blocks, last = _blocks(text)
        return "".join([*map(self._pass, blocks), self._pass(last, final=True)])

    def _check(self) -> None:
        if self._is_finished:
            raise UsageError("this text was finished; start another stream")

    def _pass(self, text: str, *, final: bool = False) -> str:
        """Through all stages."""
        for stage in self._stages:
            text = stage.finish(text) if final else stage.push(text)
        self._forget()
        return text

    def _forget(self) -> None:
        """Drop what only positions would need that no stage can report any more."""
        if not self._log.needs_positions or max(len(stage.origins) for stage in self._stages) < MAX_REMEMBERED_EDITS:
            return
        position = self._stages[-1].num_taken
        self._stages[-1].origins = PositionMap()
        for stage in reversed(self._stages[:-1]):
            stage.origins = stage.origins.without_before(position)
            position = stage.origins.origin(position)


def _stages_of(policy: SanitizePolicy) -> Iterator[type[TextStage]]:
    yield from (SurrogatePairs, HarmfulCharacters)
    if policy.nfc != "keep":
        yield from (MarkLimit, ComposedForm)
    if policy.special_tokens:
        yield SpecialTexts


def _blocks(text: str) -> list[str]:
    return [text[start : start + BLOCK_CHARS] for start in range(0, len(text), BLOCK_CHARS)] or [""]


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
