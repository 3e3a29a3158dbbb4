"""QNT112: an activation order where there are no groups to order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.engines.version_range import in_range
from degarble.evidence.act_orders import ActOrder
from degarble.finding import Finding, Fix, Location, Severity
from degarble.methods.interface import Declaration
from degarble.registry import check

IDLE_ORDERS = frozenset({"static", "weight"})
"""Orders that leave the tensors as they would be without: nothing is stored for them."""

TOLERANT = ">=0.17.1"
"""compressed-tensors since vllm-project/llm-compressor#2843 reads and writes an idle order without groups."""


@check("QNT112")
def act_order_without_groups(declaration: Declaration, act_orders: Sequence[ActOrder]) -> Iterator[Finding]:
    """The config asks for activation ordering in a scheme that has no groups.

    ## What it looks for
    Every `actorder` in the quantisation config, with the strategy beside it. Ordering says which inputs share a group;
    with one scale per tensor, channel or block there is nothing to order.

    ## Why output turns to garbage
    Readers validate the config before they open a weight, and many refuse it. `group` (or `true`) also promises a
    stored group index: an engine that believes it looks for a tensor that is not there, or permutes inputs by memory.

    ## What you will see
    "Must use group or tensor_group strategy to apply activation ordering" while loading, or a missing `g_idx`.

    ## How to tell it from its look-alikes
    GPTQ's `desc_act` with `group_size` -1 is legal, and is another key. `static` and `weight` leave no trace in the
    tensors: compressed-tensors 0.17.1 and later write and read them without groups, so for a file that states such a
    version this is a warning about older readers only.

    ## How to confirm
    Look at the named key and at `strategy` and `group_size` beside it.

    ## How to repair it
    Remove the key, or set it to null. Safe unattended: without groups it has no meaning.

    ## References
    vllm-project/llm-compressor#2805, vllm-project/llm-compressor#2843
    """
    for order in act_orders:
        if not order.has_groups:
            yield _finding(declaration, order)


def _finding(declaration: Declaration, order: ActOrder) -> Finding:
    tolerated = order.value in IDLE_ORDERS and in_range(declaration.version or "", TOLERANT) is True
    note = (
        f"; its writer ({declaration.version}) ignores that, readers before 0.17.1 refuse it"
        if tolerated
        else "; there is nothing to order"
    )
    return Finding(
        location=Location(file=declaration.file, key=order.key),
        message=f"{declaration.file}: {order.key} is {order.value!r}, but the strategy is {order.strategy}{note}",
        severity=Severity.WARNING if tolerated else None,
        measured={"actorder": order.value, "strategy": order.strategy},
        bound={"strategy": ["group", "tensor_group"]},
        fix=Fix(id="remove-actorder", safe=True),
        fold=None if tolerated else f"refused {order.key}",
    )
