"""Where somebody may look at every step, and end or mend what goes wrong. The engine runs without one.

step      begin_step      before anything is scheduled
          see_logits      after the forward pass; may replace logits, or finish a request, which is then not sampled
          see_token       after each token that was chosen; may finish the request
          see_end         before a request's blocks are given back, whatever ended it
          end_step        after everything is settled
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from degarble_engine.engine.request import Request
    from degarble_engine.engine.sampler import Sampled
    from degarble_engine.engine.scheduler import Scheduled


class Supervisor:
    """Sees and does nothing. All of it is called by the thread that owns the engine."""

    def begin_step(self) -> None:
        """Nothing is in flight."""

    def see_logits(self, parts: Sequence[Scheduled], logits: list[Tensor]) -> None:
        """`logits[i]` is [1 + drafts, vocab] of `parts[i]`, or [0, vocab] where no token follows; may be replaced."""

    def see_token(self, request: Request, sampled: Sampled, row: int) -> None:
        """The request has one more token, chosen from the given row of its logits."""

    def see_end(self, request: Request) -> None:
        """The request has a finish reason and still holds its blocks."""

    def end_step(self) -> None:
        """The step's tokens are settled."""
