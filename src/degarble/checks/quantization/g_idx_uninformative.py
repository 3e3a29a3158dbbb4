"""QNT113: the stored group index is no assignment of inputs to groups, or contradicts desc_act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from degarble.checkpoint.interface import element_bits, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.evidence.declared_key import declared_key
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.registry import Level, check

NOT_USED = -1
"""compressed-tensors fills a group index with it that nobody set."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one index, in words and numbers."""

    kind: str
    text: str
    measured: dict[str, int]
    bound: dict[str, int]


@check("QNT113", level=Level.CONTENT, requires=("CKP101", "CKP105"), symptom_of=("CFG102", "QNT104", "QNT101"))
def g_idx_uninformative(modules: Modules, declaration: Declaration | None = None) -> Iterator[Finding]:
    """The stored group index does not assign every input to one of the groups, or contradicts `desc_act`.

    ## What it looks for
    The group index of every module that stores one: every entry lies between 0 and the number of groups, not all are
    the same, and every group has as many inputs as the group size says, the last one at most as many. Then the order:
    rising from group to group, or shuffled, against what the config says of activation order.

    ## Why output turns to garbage
    w[o, i] is scaled by the scale of group `g_idx[i]`. An index of zeros gives all inputs the first scale; an entry out
    of range reads what lies behind the table. If the order is shuffled and the config says `desc_act: false`, engines
    that trust the config do not read the index at all, and use the scale of input i / group_size.

    ## What you will see
    Nonsense from the first token, in all engines or only in those that trust the config: a shuffled index that is
    ignored raises a perplexity of 9 to 17 million.

    ## How to tell it from its look-alikes
    With one group for all inputs an index of zeros is right, `desc_act` or not. A rising index is what files without
    activation order store; with `desc_act: true` it only costs time, so that is an info. An index full of -1 was never
    set, and compressed-tensors takes it for absent.

    ## How to confirm
    Count how often each value occurs in the tensor: all counts but the last must equal the group size.

    ## How to repair it
    An index that contradicts only `desc_act` needs the flag set to what the data says: safe unattended. A damaged index
    can be rebuilt if the order was rising; the codes do not tell, so this is not done unattended.

    ## References
    turboderp/exllama#44, vllm-project/vllm#7374
    """
    indexed = [module for module in modules.values() if module.form.is_quantized and _has_readable_index(module)]
    orders: list[tuple[StoredModule, bool]] = []
    for module in indexed:
        stored = module.array("g_idx")
        index = stored.reshape(-1).astype(np.int64)
        groups = _num_groups(module)
        if groups is None or index.size == 0 or bool((index == NOT_USED).all()):
            continue
        verdict = _judge(index, groups, _group_size(module))
        if verdict is not None:
            yield _damaged(module, verdict)
        elif groups > 1:
            orders.append((module, bool((np.diff(index) >= 0).all())))
    if declaration is not None:
        yield from _against_config(orders, declaration)


def _has_readable_index(module: StoredModule) -> bool:
    info = module.part("g_idx")
    return info is not None and (element_bits(info.dtype) or 0) * num_elements(info.shape) == info.nbytes * 8


def _judge(index: Array, groups: int, group_size: int | None) -> Verdict | None:
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= groups:
        first = int(np.flatnonzero((index < 0) | (index >= groups))[0])
        worst = {"first_input": first, "value": int(index[first])}
        return Verdict(
            kind="range",
            text=f"input {first} belongs to group {index[first]}, there are {groups}",
            measured=worst,
            bound={"groups": groups},
        )
    if groups > 1 and low == high:
        return Verdict(
            kind="constant",
            text=f"all {index.size} inputs belong to group {low} of {groups}",
            measured={"groups_used": 1},
            bound={"groups": groups},
        )
    if group_size is None or groups == 1:
        return None
    counts = np.bincount(index, minlength=groups)
    expected = np.full(groups, group_size)
    expected[-1] = index.size - group_size * (groups - 1)
    if expected[-1] <= 0 or bool((counts == expected).all()):
        return None
    group = int(np.flatnonzero(counts != expected)[0])
    return Verdict(
        kind="count",
        text=f"group {group} has {counts[group]} inputs, the group size is {group_size}",
        measured={"group": group, "inputs": int(counts[group])},
        bound={"inputs": int(expected[group])},
    )


def _damaged(module: StoredModule, verdict: Verdict) -> Finding:
    info = module.parts[module.form.roles["g_idx"]]
    return Finding(
        location=module.place("g_idx"),
        message=f"{info.name}: {verdict.text}",
        measured=dict(verdict.measured),
        bound=dict(verdict.bound),
        fix=Fix(id="rebuild-group-index", safe=False),
        fold=f"damaged {verdict.kind}",
    )


def _against_config(orders: list[tuple[StoredModule, bool]], declaration: Declaration) -> Iterator[Finding]:
    """Order as stored against order as declared. Most modules decide whether the config is at fault."""
    declared = {module.name: _is_ordered(declaration, module) for module, _ in orders}
    counts = Counter((is_rising, declared[module.name]) for module, is_rising in orders)
    for module, is_rising in orders:
        if not is_rising and declared[module.name] is False:
            config = counts[False, False] * 2 > len(orders)
            yield _contradiction(module, declaration, counts[False, False], len(orders), is_config=config)
        elif is_rising and declared[module.name] is True and counts[True, True] == len(orders):
            yield _contradiction(module, declaration, counts[True, True], len(orders), is_config=True, idle=True)


def _contradiction(
    module: StoredModule, declaration: Declaration, count: int, total: int, *, is_config: bool, idle: bool = False
) -> Finding:
    info = module.parts[module.form.roles["g_idx"]]
    key = declared_key(declaration, module.name, "act_order")
    if idle:
        text = f"{key} is true, but the group index rises in all {total} modules: there is no order, only its cost"
    else:
        text = f"the inputs of {count} of {total} modules are shuffled ({info.name}), but {key} says there is no order"
    return Finding(
        location=module.place("g_idx", file=declaration.file if is_config else None, key=key),
        message=f"{declaration.file}: {text}",
        severity=Severity.INFO if idle else None,
        measured={"modules": count},
        bound={"modules": 0},
        fix=Fix(id="set-desc-act", safe=True),
        fold="idle" if idle else "order",
    )


def _is_ordered(declaration: Declaration, module: StoredModule) -> bool | None:
    """What the config says of this module; None where it does not speak."""
    scheme = declaration.scheme_for(module.name)
    return None if scheme is None else scheme.act_order == "group"


def _num_groups(module: StoredModule) -> int | None:
    """Groups as the scales have them; None where there are no scales to index."""
    scheme, shape, scale = module.form.scheme, module.form.shape, module.part("scale")
    if scheme is None or shape is None or scale is None or not shape[-1]:
        return None
    if scheme.strategy == "channel":
        return 1
    return -(-shape[-1] // scheme.group_size) if scheme.group_size else None


def _group_size(module: StoredModule) -> int | None:
    return module.form.scheme.group_size if module.form.scheme is not None else None
