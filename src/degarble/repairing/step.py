"""What a plan is made of: steps that were taken, and findings that stayed, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from degarble.finding import Finding, Location
from degarble.fixes.interface import Edit


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One repair of one finding: what it changed, and whether anybody had to judge."""

    repair: str
    finding: Finding
    edits: tuple[Edit, ...]
    judgement: str | None = None
    """Why it is not safe; None: it is."""

    @property
    def is_safe(self) -> bool:
        """Whether the files at hand, or the reference, left exactly one answer."""
        return self.judgement is None

    @property
    def is_copy(self) -> bool:
        """Whether all it did was to take over what the reference has."""
        return all("the reference" in edit.what for edit in self.edits)

    def touches(self, place: Location) -> bool:
        """Whether it changed the tensor, the module or the key of a place."""
        mine = place.module or place.tensor or place.key or place.file or ""
        names = [edit.tensor or edit.key or edit.file for edit in self.edits]
        return any(name == mine or name.startswith(f"{mine}.") for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A finding that was not repaired."""

    finding: Finding
    reason: str
    fetch: tuple[str, ...] = ()
    """What would have to be fetched, and from where."""
    needs_unsafe: bool = False
    """Whether the user's word is all that is missing."""
