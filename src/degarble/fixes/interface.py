"""`@repair`: a small function that undoes one kind of damage in a view of the checkpoint.

A finding names its repair (`Fix.id`). The repair gets a Job: the finding, the evidence of the sick state, the reference
if there is one, and ways to edit that note what they change. It changes only what the finding is about.

    safe      the files at hand leave exactly one answer, or the answer is an exact copy from the reference
    unsafe    a judgement: the repair calls `job.judge(reason)`, and runs only if the user allows it

A repair that lacks the information raises CannotRepair and says what has to be fetched. It never guesses in silence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from degarble.registry import walk

if TYPE_CHECKING:
    from degarble.fixes.job import Job

RepairFunction = Callable[["Job"], None]

SECTIONS = ("What it changes", "Why there is one answer", "What it cannot do")
"""The headings of a repair's page, in order."""


class CannotRepair(Exception):
    """The information is not there. `fetch` lists what would have to be obtained, and from where."""

    def __init__(self, reason: str, fetch: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fetch = fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change to one file: a JSON or GGUF key, a tensor, or the file as a whole."""

    file: str
    key: str | None = None
    tensor: str | None = None
    what: str
    """In words: `set`, `copied from the reference`, `renamed to …`."""
    before: Any = None
    """The value where it is small, `sha256:…` otherwise; None for what was not there."""
    after: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One decorated function."""

    id: str
    function: RepairFunction

    @property
    def page(self) -> str:
        """Its docstring: what it changes, why that is the only answer, what it cannot do."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.split("\n", 1)[0]


def repair(*ids: str) -> Callable[[RepairFunction], RepairFunction]:
    """Mark a function as the repair that findings call by these ids."""

    def mark(function: RepairFunction) -> RepairFunction:
        function.__dict__["degarble_repair"] = ids
        return function

    return mark


@cache
def repairs() -> dict[str, Repair]:
    """Every repair there is, by id. Raises ValueError if two functions claim one id."""
    import degarble.fixes as package

    found: dict[str, Repair] = {}
    for module in walk(package):
        for member in vars(module).values():
            ids = getattr(member, "__dict__", {}).get("degarble_repair", ())
            for name in ids if ids and member.__module__ == module.__name__ else ():
                if name in found:
                    raise ValueError(f"{name} is repaired in {module.__name__} and elsewhere")
                found[name] = Repair(id=name, function=member)
    return dict(sorted(found.items()))
