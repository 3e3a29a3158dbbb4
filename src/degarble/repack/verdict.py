"""What the verifier can say about a chain of steps. What each outcome means stands in verify.py."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from degarble.repack.probe import Position


class Outcome(StrEnum):
    """See above."""

    IDENTITY = "identity"
    LOSSLESS = "lossless"
    LOST = "lost"
    MISPLACED = "misplaced"
    ALTERED = "altered"
    UNDECIDED = "undecided"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one chain of steps."""

    outcome: Outcome
    num_bits: int
    shape: tuple[int, int]
    num_runs: int
    """Matrices that went through."""
    step: str | None = None
    """The step that loses codes."""
    position: Position | None = None
    """(output, input) of the example."""
    collisions: tuple[tuple[int, ...], ...] = ()
    """Fields that end as one, group by group; for `lost` at one place."""
    values: tuple[float | int | None, ...] = ()
    """The single value that each group of `collisions` ends as, where it is one."""
    places: tuple[tuple[Position, Position], ...] = ()
    """`misplaced`: where the code of the first place comes back; at most 16 pairs."""
    mapping: tuple[tuple[int, int], ...] = ()
    """`altered`: field that went in, field that came back."""
    detail: str = ""
    """One more sentence, where the outcome alone does not explain itself."""

    @property
    def is_lossless(self) -> bool:
        """Whether nothing was found wrong."""
        return self.outcome in (Outcome.IDENTITY, Outcome.LOSSLESS)

    @property
    def lost_codes(self) -> tuple[int, ...]:
        """Fields that share their fate with another one."""
        return tuple(sorted(code for group in self.collisions if len(group) > 1 for code in group))
