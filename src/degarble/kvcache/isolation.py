"""A block boundary after control tokens: a policy, not a need, and its price in blocks (KVC611).

With the policy, no block holds a control token of a chosen class and a token after it, so no text shares a block with
a template's markers. Where blocks end is a function of the token ids alone: every request that has the same ids cuts
them at the same places, and prefix sharing goes on working. What it costs are the rows left empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """Control tokens by class (`bos`, `eos`, `role`, …) and the classes that end a block."""

    control_tokens: Mapping[int, str] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()

    @cached_property
    def ending_ids(self) -> frozenset[int]:
        """Token ids after which a block ends."""
        return frozenset(token for token, kind in self.control_tokens.items() if kind in self.classes)

    @property
    def is_active(self) -> bool:
        """Whether any token ends a block."""
        return bool(self.ending_ids)

    def edges(self, token_ids: Sequence[int], block_size: int) -> list[int]:
        """Where blocks begin, and the end of the last: block c holds [edges[c], edges[c + 1]).

        The last one is there only if it is full or ended by a control token; a block that may still grow is not.
        """
        edges = [0]
        ending = self.ending_ids
        for position, token in enumerate(token_ids, 1):
            if position - edges[-1] == block_size or token in ending:
                edges.append(position)
        return edges


NO_ISOLATION = Isolation()


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationCost:
    """Blocks that sequences take with and without the policy."""

    num_blocks_plain: int
    num_blocks_isolated: int
    empty_rows: int

    @property
    def share(self) -> float:
        """Additional blocks over plain ones: 0.25 is a quarter more."""
        return self.num_blocks_isolated / self.num_blocks_plain - 1 if self.num_blocks_plain else 0.0


def isolation_cost(isolation: Isolation, sequences: Sequence[Sequence[int]], block_size: int) -> IsolationCost:
    """What the policy costs for given sequences, counted."""
    plain = isolated = rows = 0
    for ids in sequences:
        edges = isolation.edges(ids, block_size)
        used = len(edges) - 1 + (edges[-1] < len(ids))
        plain += -(-len(ids) // block_size)
        isolated += used
        rows += len(ids)
    return IsolationCost(num_blocks_plain=plain, num_blocks_isolated=isolated, empty_rows=isolated * block_size - rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBlock:
    """A block in which something follows a control token."""

    column: int
    position: int
    """Of the control token."""
    token_id: int


def shared_blocks(isolation: Isolation, token_ids: Sequence[int], edges: Sequence[int]) -> list[SharedBlock]:
    """Where a real cutting of a sequence breaks the policy; `edges` as the engine cut it, growing block included."""
    found: list[SharedBlock] = []
    starts = sorted(edges)
    for position, token in enumerate(token_ids):
        if token not in isolation.ending_ids or position + 1 >= len(token_ids):
            continue
        column = bisect_right(starts, position) - 1
        if bisect_right(starts, position + 1) - 1 == column:
            found.append(SharedBlock(column=column, position=position, token_id=token))
    return found
