"""What repairs of skip lists share: where the list stands, what each entry reaches, and full names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from degarble.engines.skip_rules import skipped_names
from degarble.evidence.modules import Modules
from degarble.evidence.skips import Skips
from degarble.fixes.interface import CannotRepair
from degarble.fixes.job import Job

TABLE = "dynamic"
"""GPTQModel's table of regular expressions, in which `-:` means that a module stays plain."""


class SkipEntries:
    """The list of one checkpoint, and what all known engines make of each entry."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.skips: Skips = job.need("skips")
        if not self.skips.views:
            raise CannotRepair(f"no engine is known to read a skip list of {self.skips.declaration.method}")
        self.file = self.skips.declaration.file
        self.key = self.skips.lists[0].key if self.skips.lists else self._usual_key()
        self.is_table = self.key.rpartition(".")[2] == TABLE
        self._rules = list(dict.fromkeys(view.reading.rule for view in self.skips.views))
        self._reached: dict[str, tuple[frozenset[str], ...]] = {}
        self._names: list[str] | None = None

    @property
    def entries(self) -> tuple[str, ...]:
        """As they stand in the file."""
        return self.skips.lists[0].entries if self.skips.lists else ()

    def write(self, entries: Iterable[str], what: str) -> None:
        """Replace the list. Overrides in a table keep their values and their order."""
        wanted = list(dict.fromkeys(entries))
        value: Any = wanted
        if self.is_table:
            old = self._job.value(self.file, self.key)
            table = old if isinstance(old, dict) else {}
            value = {entry: table.get(entry, {}) for entry in wanted}
        if wanted != list(self.entries):
            self._job.set_key(self.file, self.key, value, what)

    def full_entry(self, module: str) -> str:
        """An entry that every engine takes to mean exactly this module."""
        return f"-:{re.escape(module)}$" if self.is_table else module

    def reached(self, entry: str) -> tuple[frozenset[str], ...]:
        """The stored modules that an entry reaches, under each reading."""
        if entry not in self._reached:
            names = self._reachable()
            self._reached[entry] = tuple(skipped_names(rule, [entry], names).skipped for rule in self._rules)
        return self._reached[entry]

    def _reachable(self) -> list[str]:
        """Names that any entry reaches under any reading: entries are then tried on these alone."""
        if self._names is None:
            modules: Modules = self._job.modules
            every = [name for name, module in modules.items() if module.payload is not None]
            hits = [skipped_names(rule, self.entries, every).skipped for rule in self._rules]
            self._names = sorted(frozenset().union(*hits))
        return self._names

    def _usual_key(self) -> str:
        """The key that most engines read."""
        keys = Counter(view.key for view in self.skips.views)
        return keys.most_common(1)[0][0]
