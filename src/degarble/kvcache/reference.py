"""The plain twin of the block manager: a dict of lists, no blocks, no sharing, no eviction. Slow, obvious, right.

What a row of a cache must hold is a function of the request alone: the namespace and all tokens up to that position.
`row_value` is that function, one number per row; an engine's memory, whatever blocks it uses, must read back the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from degarble.errors import BlockMisuse
from degarble.kvcache.namespace import PLAIN, Namespace

MASK = (1 << 62) - 1
MULTIPLIER = 0x2545F4914F6CDD1D
"""Of the mixing step below; any odd constant of 62 bits would do."""


def row_value(before: int, token_id: int) -> int:
    """The content of a row from that of the row before it: K and V of a token depend on everything earlier."""
    mixed = ((before ^ (token_id + 1)) * MULTIPLIER) & MASK
    return (mixed ^ (mixed >> 31)) or 1


def row_values(namespace: Namespace, token_ids: Sequence[int], before: Sequence[int] = ()) -> list[int]:
    """Values of all rows of a sequence, those known already given as `before`.

    An image counts from its first placeholder on: under causal attention rows before it cannot know of it.
    """
    values = list(before)
    last = values[-1] if values else _number(namespace.root.decode("utf-8", "surrogatepass"))
    images = {image.start: _number(f"{image.length}:{image.digest}") for image in namespace.images}
    for position in range(len(values), len(token_ids)):
        last = row_value(last ^ images.get(position, 0), token_ids[position])
        values.append(last)
    return values


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:7], "little")


class ReferenceCache:
    """The same calls as BlockManager; every request owns plain lists."""

    def __init__(self) -> None:
        self.token_ids: dict[str, list[int]] = {}
        self.rows: dict[str, list[int]] = {}
        """Values of computed rows; `len` is the number of computed tokens."""
        self.namespaces: dict[str, Namespace] = {}
        self.num_scheduled: dict[str, int] = {}
        self.num_drafts: dict[str, int] = {}

    def open(
        self, request: str, token_ids: Sequence[int], namespace: Namespace = PLAIN, *, num_cached: int = 0
    ) -> None:
        """A new request; `num_cached` is how many rows a prefix cache claims to have."""
        if request in self.token_ids or not token_ids or num_cached >= len(token_ids):
            raise BlockMisuse(f"{request!r} cannot open with {len(token_ids)} tokens, {num_cached} of them cached")
        self.token_ids[request] = list(token_ids)
        self.namespaces[request] = namespace
        self.num_drafts[request] = 0
        self.resume(request, num_cached=num_cached)

    def resume(self, request: str, *, num_cached: int) -> None:
        """Rows below `num_cached` are there again; the rest is to be computed."""
        self.rows[request] = self.expected(request)[:num_cached]
        self.num_scheduled[request] = num_cached

    def expected(self, request: str) -> list[int]:
        """What every row of the known tokens holds once it is computed."""
        return row_values(self.namespaces[request], self.token_ids[request], self.rows.get(request, ()))

    def schedule(self, request: str, num_tokens: int, draft_ids: Sequence[int] = ()) -> tuple[int, int]:
        """Positions [start, end) of the next step."""
        start = self.num_scheduled[request]
        self.token_ids[request] += draft_ids
        self.num_drafts[request] = len(draft_ids)
        self.num_scheduled[request] = start + num_tokens + len(draft_ids)
        return start, self.num_scheduled[request]

    def complete(self, request: str, new_ids: Sequence[int] = ()) -> None:
        """All scheduled tokens are computed; of drafts only the accepted ones stay."""
        ids, drafts = self.token_ids[request], self.num_drafts[request]
        if drafts:
            rejected = drafts - (len(new_ids) - 1)
            del ids[len(ids) - rejected :]
            self.num_scheduled[request] -= rejected
            self.num_drafts[request] = 0
            new_ids = new_ids[-1:]
        self.rows[request] = self.expected(request)[: self.num_scheduled[request]]
        ids += new_ids

    def fork(self, request: str, child: str) -> None:
        """A copy."""
        for table in (self.token_ids, self.rows):
            table[child] = list(table[request])
        self.namespaces[child] = self.namespaces[request]
        self.num_scheduled[child], self.num_drafts[child] = self.num_scheduled[request], 0

    def preempt(self, request: str) -> None:
        """Forget what is in flight."""
        ids = self.token_ids[request]
        del ids[len(ids) - self.num_drafts[request] :]
        self.num_drafts[request] = 0
        self.num_scheduled[request] = len(self.rows[request])

    def finish(self, request: str) -> None:
        """Forget everything."""
        for table in (self.token_ids, self.rows, self.namespaces, self.num_scheduled, self.num_drafts):
            del table[request]
