"""One answer as guards see it: the request, the entropies of its steps, its exact text, and who has spoken already."""

from __future__ import annotations

from collections import deque

from degarble.tokenizer.detokenize import TextStream
from degarble_engine.engine.request import Request
from degarble_engine.engine.trip import Trip, TripKind

REMEMBERED = 64
"""Entropies that are kept: no guard looks further back."""


class Watched:
    """Changed by the rail; guards keep their own state of a request in `state`."""

    def __init__(self, request: Request, stream: TextStream | None = None) -> None:
        self.request = request
        self.entropies: deque[float] = deque(maxlen=REMEMBERED)
        """Of the steps that gave the last tokens, in nats."""
        self.stream = stream
        self.text = ""
        """Text since the last time a guard of text took it."""
        self.state: dict[str, object] = {}
        self.spoken: set[tuple[str, TripKind]] = set()
        """A guard says each kind of thing once an answer."""
        self.num_retries = 0
        self.is_corrupted = False
        """Whether it ever had logits that are not finite."""
        self.is_ended_by_model = False
        """Whether an end was sampled that the request asked to ignore: what follows is not the model's fault."""

    @property
    def num_outputs(self) -> int:
        """Tokens of the answer."""
        return self.request.num_outputs

    def trip(self, guard: str, kind: TripKind, message: str, **numbers: tuple[float, float]) -> Trip | None:
        """A record, with `name=(measured, bound)`; None if this was said before."""
        if (guard, kind) in self.spoken:
            return None
        self.spoken.add((guard, kind))
        return Trip(
            guard=guard,
            kind=kind,
            num_outputs=self.num_outputs,
            message=message,
            measured={name: pair[0] for name, pair in numbers.items()},
            bound={name: pair[1] for name, pair in numbers.items()},
        )
