"""Regular expressions of a config as module rules: bounded in time, and never a crash.

A config may name a hundred patterns and a mixture of experts 46,000 modules. Neighbouring patterns with one outcome are
merged (see engines/pattern_set.py), so a name is compared once a run of them. What is invalid is noted when the config
is read; what backtracks without end is dropped when it is first met, and noted then.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from degarble.engines.pattern_set import Pattern, Predicate, UnusableEntry, check_entry, compile_patterns
from degarble.formats.scheme import Scheme
from degarble.methods.interface import ModuleRule

MAX_SLOW_PATTERNS = 3
"""After so many patterns that run out of time the whole set is given up."""


class GuardedPatterns:
    """Whether any of several patterns matches a name from its start; unusable ones are dropped and listed."""

    def __init__(self, patterns: Sequence[Pattern], unusable: list[str]) -> None:
        self._unusable = unusable
        self._slow = 0
        self._patterns = [pattern for pattern in patterns if self._is_usable(pattern)]
        self._matches: Predicate = compile_patterns(self._patterns)

    def _is_usable(self, pattern: Pattern) -> bool:
        try:
            check_entry(pattern.entry)
            compile_patterns([pattern])
        except UnusableEntry:
            self._unusable.append(pattern.entry)
            return False
        return True

    def __call__(self, name: str) -> bool:
        """Match; a pattern that takes too long is as if it were not there."""
        while True:
            try:
                return self._matches(name)
            except UnusableEntry as problem:
                self._drop(str(problem.entry))

    def _drop(self, entry: str) -> None:
        self._slow += 1
        self._unusable.append(entry)
        keep = [pattern for pattern in self._patterns if pattern.entry != entry]
        self._patterns = keep if self._slow < MAX_SLOW_PATTERNS else []
        self._matches = compile_patterns(self._patterns)


def pattern_rules(
    key: str, patterns: Sequence[tuple[Pattern, Scheme | None]], unusable: list[str]
) -> tuple[ModuleRule, ...]:
    """Rules of which the first that matches decides; `unusable` grows when a pattern has to be dropped."""
    return tuple(
        ModuleRule(key=key, matches=GuardedPatterns([pattern for pattern, _ in run], unusable), scheme=scheme)
        for scheme, run in ((scheme, list(group)) for scheme, group in groupby(patterns, key=lambda entry: entry[1]))
    )


def ending_rule(key: str, endings: Sequence[str], scheme: Scheme | None, *, invert: bool = False) -> ModuleRule:
    """Modules whose last components are one of `endings`, or all others."""
    dotted_endings = tuple(f".{ending}" for ending in endings)

    def matches(name: str) -> bool:
        return f".{name}".endswith(dotted_endings) is not invert

    return ModuleRule(key=key, matches=matches, scheme=scheme)
