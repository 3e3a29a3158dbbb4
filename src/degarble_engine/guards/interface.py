"""A guard: what it sees, how many tokens it needs for that, and what is done about it.

Guards are found by walking this package, and asked by their class's docstring and attributes; there is no list of them.
A guard never acts. It returns a Trip, and the rail (rail.py) does what the user chose for that guard:

    off        not even looked at
    log        one line, and a counter
    annotate   and a note in the answer
    stop       and, if it is damage, the answer ends: with an error where no token can be trusted, otherwise with
               `content_filter`; never with `stop`, which would say that the model had finished
    retry      and, if it is damage in logits, the step is decoded once more in the reference precision first
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

import msgspec

from degarble.tokenizer.detokenize import Detokenizer
from degarble_engine.engine.request import FinishReason
from degarble_engine.engine.trip import Trip
from degarble_engine.guards.block_tap import BlockTap
from degarble_engine.guards.watched import Watched


class Action(StrEnum):
    """In order: each does what those before it do."""

    OFF = "off"
    LOG = "log"
    ANNOTATE = "annotate"
    STOP = "stop"
    RETRY = "retry"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What guards may know of the engine that they look at."""

    vocab_size: int
    max_model_len: int
    end_ids: frozenset[int] = frozenset()
    """Ends that the engine obeys."""
    end_like_ids: frozenset[int] = frozenset()
    """Special tokens that a vocabulary uses to end a text or a turn, obeyed or not."""
    special_ids: frozenset[int] = frozenset()
    showing: Detokenizer | None = None
    """With special tokens; None: no tokenizer is known, and guards of text see nothing."""
    tap: BlockTap | None = None


class Row(msgspec.Struct, frozen=True):
    """One row of logits of a step."""

    watched: Watched
    entropy: float
    """In nats, of the model's own distribution; NaN where a logit is not finite."""


class Guard:
    """Base of all guards; a subclass overrides what it needs. `name` is how `--guard` calls it."""

    name: ClassVar[str]
    default: ClassVar[Action] = Action.ANNOTATE
    bound: ClassVar[str]
    """Within how many tokens of the first damaged one it trips, in words."""
    ends_with: ClassVar[FinishReason] = FinishReason.CONTENT_FILTER
    is_in_logits: ClassVar[bool] = False
    """Whether it sees damage before a token is chosen, so that a step can be decoded again."""
    reads_text: ClassVar[bool] = False
    """Whether it takes `watched.text`, which is only made for those that do."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings

    @property
    def silence(self) -> str | None:
        """Why it can see nothing here; None if it can."""
        return None

    def see_logits(self, rows: Sequence[Row]) -> list[tuple[Watched, Trip]]:
        """All rows of a step at once, before any token is chosen."""
        return []

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """One more token of one answer; `watched` has it already."""
        return None

    def see_end(self, watched: Watched) -> Trip | None:
        """The answer has ended, by itself or by its limit."""
        return None
