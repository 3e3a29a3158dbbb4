"""What may hold a request to a grammar: before each token a mask, after it the token."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Guide(Protocol):
    """One request's own; the engine's thread alone uses it once the request was added."""

    def allowed(self) -> Tensor:
        """[vocab], True for tokens that may come next; an end of text is one of them where the text may end."""

    def take(self, token_id: int) -> str | None:
        """Go on behind a sampled token. A reason where the guide can say nothing more: the request ends with it."""
