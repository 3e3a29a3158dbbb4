"""Evidence about activation ordering: every place in a quantisation config that asks for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from degarble.evidence.store import provides
from degarble.methods.interface import Declaration

GROUP_STRATEGIES = frozenset({"group", "tensor_group"})
MAX_DEPTH = 6


class ActOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One `actorder` key with a value, and the grouping beside it."""

    key: str
    """Dotted."""
    value: str
    """`group` needs a stored group index; `weight`, `static` and others do not."""
    strategy: str
    """As written, or as it follows from the group size."""

    @property
    def has_groups(self) -> bool:
        """Whether there are groups that could be ordered."""
        return self.strategy in GROUP_STRATEGIES


@provides("act_orders")
def act_orders(declaration: Declaration) -> tuple[ActOrder, ...]:
    """Every activation ordering that a compressed-tensors config names. GPTQ's desc_act is another thing."""
    return tuple(_walk(declaration.raw, declaration.key, 0))


def _walk(value: Any, key: str, depth: int) -> Iterator[ActOrder]:
    if not isinstance(value, dict) or depth > MAX_DEPTH:
        return
    order = _order(value.get("actorder"))
    if order is not None:
        path = f"{key}.actorder" if key else "actorder"
        yield ActOrder(key=path, value=order, strategy=_strategy(value))
    for name, inner in value.items():
        yield from _walk(inner, f"{key}.{name}" if key else str(name), depth + 1)


def _order(value: Any) -> str | None:
    """`true` means `group`; false, null and foreign types mean none."""
    if value is True:
        return "group"
    return value.lower() if isinstance(value, str) and value else None


def _strategy(scheme: Mapping[str, Any]) -> str:
    """The strategy, or what compressed-tensors infers: no group size is per tensor, -1 per channel."""
    written = scheme.get("strategy")
    if isinstance(written, str):
        return written
    size = scheme.get("group_size")
    if not isinstance(size, int) or isinstance(size, bool):
        return "tensor"
    return "group" if size > 0 else "channel"
