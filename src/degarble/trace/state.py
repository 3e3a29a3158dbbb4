"""What all judges of a replay share: the pool, the live requests, the open steps, and the journal they write to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from degarble.trace.event import Event, Meta, Name
from degarble.trace.geometry import GroupGeometry, geometries
from degarble.trace.pool import Block, OpenStep, Pool, Sequence, Table
from degarble.trace.violation import Journal, Number, Violation

MAX_ENDED = 100_000
"""Names of ended requests that are remembered, so that their late events read as such."""


class State:
    """The pool as the events so far have left it."""

    def __init__(self, journal: Journal, rank: int | None = None) -> None:
        self.journal = journal
        self.rank = rank
        self.meta: Meta | None = None
        self.groups: dict[int, GroupGeometry] = {}
        self.sequences: dict[Name, Sequence] = {}
        self.ended: OrderedDict[Name, int] = OrderedDict()
        self.steps: dict[Name | None, OpenStep] = {}
        self.step: OpenStep | None = None
        """The open step that began last: forwards belong to it."""
        self.closed_steps: OrderedDict[Name | None, int] = OrderedDict()
        self._pools: dict[int, Pool] = {}

    def set_meta(self, meta: Meta) -> None:
        """Take the geometry; groups share one pool unless their numbers of blocks differ."""
        self.meta = meta
        self.groups = geometries(meta, meta.rank if meta.rank is not None else self.rank)
        shared: dict[int | None, Pool] = {}
        self._pools = {g: shared.setdefault(geometry.num_blocks, Pool()) for g, geometry in self.groups.items()}

    def pool(self, g: int) -> Pool:
        """The blocks of a group."""
        pool = self._pools.get(g)
        if pool is None:
            pool = self._pools[g] = Pool()
        return pool

    def geometry(self, g: int) -> GroupGeometry:
        """A group's geometry; of an undeclared one nothing is known but that it exists."""
        found = self.groups.get(g)
        if found is None:
            meta = self.meta or Meta(n=0)
            found = geometries(Meta(n=0, num_blocks=meta.num_blocks, null_block=meta.null_block), None)[0]
            self.groups[g] = found
        return found

    def table(self, sequence: Sequence, g: int) -> Table:
        """The block table of a request in a group, made when first named."""
        table = sequence.tables.get(g)
        if table is None:
            table = sequence.tables[g] = Table(sequence, self.geometry(g))
            table.set_plain()
            if g == 0:
                sequence.table = table
        return table

    def end(self, name: Name, n: int) -> None:
        """Forget a request."""
        sequence = self.sequences.pop(name, None)
        if sequence is not None:
            sequence.is_ended = True
        self.ended[name] = n
        if len(self.ended) > MAX_ENDED:
            self.ended.popitem(last=False)

    def find(self, event: Event, name: Name) -> Sequence | None:
        """The live request of an event; an event of any other is KVC623."""
        sequence = self.sequences.get(name)
        if sequence is None:
            ended = self.ended.get(name)
            known = "was never announced" if ended is None else f"ended at {ended}"
            what = type(event).__name__.lower()
            self.fail("KVC623", event, f"{what} of request {name!r}, which {known}", request=str(name))
        return sequence

    def checked_block(self, event: Event, block_id: int, request: str | None) -> Block | None:
        """A block whose id lies inside the pool; any other is KVC603."""
        geometry = self.geometry(event.g)
        if geometry.is_block(block_id):
            return self.pool(event.g).block(block_id)
        self.fail(
            "KVC603",
            event,
            f"block {block_id} is outside the pool of {geometry.num_blocks} blocks",
            request=request,
            block=block_id,
            measured={"block": _short(block_id)},
            bound={"min": 0, "max": None if geometry.num_blocks is None else geometry.num_blocks - 1},
        )
        return None

    def fail(
        self,
        rule: str,
        event: Event | int,
        message: str,
        *,
        request: str | None = None,
        block: Block | int | None = None,
        slot: int | None = None,
        position: int | None = None,
        layer: int | None = None,
        key: str | None = None,
        measured: Mapping[str, Number] | None = None,
        bound: Mapping[str, Number] | None = None,
        is_info: bool = False,
        is_likely: bool = False,
    ) -> None:
        """Write one violation at an event, or at a counter where an earlier event is the violating one."""
        self.journal.add(
            Violation(
                rule=rule,
                line=event if isinstance(event, int) else event.n,
                message=message,
                file=self.journal.file,
                request=request,
                block=block.id if isinstance(block, Block) else block,
                slot=slot,
                position=position,
                layer=layer,
                key=key,
                life=block.life_line() if isinstance(block, Block) else (),
                measured=measured or {},
                bound=bound or {},
                is_info=is_info,
                is_likely=is_likely,
            )
        )


def _short(number: int) -> Number:
    """A number that JSON readers can hold."""
    return number if abs(number) < 1 << 53 else f"about 2^{number.bit_length() - 1}"
