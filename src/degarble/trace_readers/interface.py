"""What a reader of a foreign format is, and what a verdict from such a file may claim.

A foreign file shows a part of what the trace schema asks for. A rule that its reader does not judge is skipped with the
reader's reason, and what a judged rule leaves out is listed as not judged: no report on a foreign file says `ok`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import isabstract
from typing import ClassVar

from degarble.errors import UsageError
from degarble.registry import walk
from degarble.trace.replay import Verdict

NATIVE = "degarble"
"""Name of the trace schema itself, as `--from` takes it."""
HEAD_BYTES = 1 << 16
"""Beginning of a file that a format is recognised by."""


@dataclass(slots=True, kw_only=True)
class ForeignVerdict(Verdict):
    """What one foreign file was found to be."""

    judged: frozenset[str] = frozenset()
    """Rules that the file can break."""
    why: str = ""
    """Why the others were not judged."""


class TraceReader(ABC):
    """Reads one format. Nothing in a file may raise anything but TargetError, or take unbounded memory."""

    name: ClassVar[str]
    """As `--from` takes it."""
    title: ClassVar[str]
    """In a sentence: `vLLM KV events`."""
    judged: ClassVar[Mapping[str, str]]
    """Rule -> what of it the format shows ('': all of it); every other rule is skipped."""
    lacks: ClassVar[str]
    """What the format does not show."""
    is_profile: ClassVar[bool] = False
    """Whether it describes kernels, and may be read beside a trace."""

    @abstractmethod
    def recognises(self, head: bytes, path: str) -> bool:
        """Whether a file is of this format; `head` are its first HEAD_BYTES. May read more of `path`, never all of it."""

    @abstractmethod
    def read(self, path: str) -> ForeignVerdict:
        """Judge what a file shows. Raises TargetError where it cannot be read or holds nothing of the format."""

    def read_all(self, paths: Sequence[str]) -> ForeignVerdict:
        """Several files of one run, each by itself."""
        verdicts = [self.read(path) for path in paths]
        merged = verdicts[0]
        for one in verdicts[1:]:
            merged.violations = sorted([*merged.violations, *one.violations], key=lambda violation: violation.line)
            merged.num_events += one.num_events
            merged.num_lines += one.num_lines
            merged.kinds |= one.kinds
            merged.unknown |= one.unknown
            merged.unjudged |= one.unjudged
            for rule, count in one.further.items():
                merged.further[rule] = merged.further.get(rule, 0) + count
        return merged

    def verdict(self) -> ForeignVerdict:
        """An empty verdict, to be filled."""
        return ForeignVerdict(violations=[], judged=frozenset(self.judged), why=self.why(), unjudged=self.limits())

    def why(self) -> str:
        """Why a rule was not judged, as the report says it."""
        return f"{self.title} do not show it: {self.lacks}"

    def limits(self) -> dict[str, str]:
        """What was not judged, for the report's coverage."""
        parts = {rule: f"judged in part: {part}" for rule, part in self.judged.items() if part}
        return {self.title: f"{self.lacks}: rules on these were not judged"} | parts


@cache
def readers() -> Mapping[str, TraceReader]:
    """Every reader there is, by name."""
    import degarble.trace_readers as package

    found: dict[str, TraceReader] = {}
    for module in walk(package):
        for member in vars(module).values():
            is_own = isinstance(member, type) and member.__module__ == module.__name__
            if is_own and issubclass(member, TraceReader) and not isabstract(member):
                found[member.name] = member()
    return found


def reader_named(name: str) -> TraceReader | None:
    """The reader that `--from` asks for; None for the trace schema. Raises UsageError for an unknown name."""
    if name == NATIVE:
        return None
    found = readers().get(name)
    if found is None:
        raise UsageError(f"--from {name}: {', '.join((NATIVE, *sorted(readers())))}")
    return found
