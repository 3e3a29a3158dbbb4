"""Drafts without a model: what followed the last time these tokens came (prompt lookup; Saxena, 2023)."""

from __future__ import annotations

from collections.abc import Sequence


class NgramDrafter:
    """Looks for the last few tokens in what came before."""

    def __init__(self, num_drafts: int = 4, longest: int = 4, shortest: int = 2) -> None:
        self._num_drafts, self._longest, self._shortest = num_drafts, longest, shortest

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """The tokens after the latest earlier occurrence of the longest matching end."""
        ids = list(token_ids)
        for length in range(min(self._longest, len(ids) - 1), self._shortest - 1, -1):
            end = ids[-length:]
            for start in range(len(ids) - length - 1, -1, -1):
                if ids[start : start + length] == end:
                    return ids[start + length : start + length + self._num_drafts]
        return []
