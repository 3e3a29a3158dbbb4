"""ENG702: activation order and tensor parallelism together, which some engines get wrong."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.engines.parallel import Role, role_of
from degarble.evidence.declared_key import declared_key
from degarble.evidence.modules import Modules
from degarble.evidence.store import Settings
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.methods.interface import Declaration
from degarble.registry import check

BREAKING_ENGINES = frozenset({"vllm", "sglang"})
"""Engines with open or version-bound reports; vLLM's is about ROCm."""


@check("ENG702", severity=Severity.WARNING, confidence=Confidence.LIKELY, symptom_of=("QNT112", "QNT113"))
def act_order_under_tp(modules: Modules, declaration: Declaration, settings: Settings) -> Iterator[Finding]:
    """Groups are in activation order, and more than one rank would share the layers whose inputs are shuffled.

    ## What it looks for
    A config that asks for a stored group order (`desc_act: true`, `actorder: group`) in a checkpoint with row-parallel
    layers (`o_proj`, `down_proj`) in groups. With `--tp` above 1 this is a warning, without `--tp` an info; with
    `--engine` only for engines that are known to break.

    ## Why output turns to garbage
    A row-parallel layer is cut along its inputs. With activation order the inputs of one rank belong to groups from all
    over the table, so every rank needs all scales and its share of the index. Engines that cut the scales as well
    multiply by those of other groups.

    ## What you will see
    One GPU answers well, two answer nonsense or NaN.

    ## How to tell it from its look-alikes
    Layers cut along their outputs are safe, and so is one scale per row. `actorder: weight` or `static` stores the
    groups in natural order. An index that only rises is QNT113's info: the flag is idle, but engines still follow it.

    ## How to confirm
    Run the same prompt greedily on one rank and on two.

    ## How to repair it
    Serve on one rank, use pipeline parallelism, or quantise with `desc_act: false`. None of this can be done to the
    file unattended.

    ## References
    vllm-project/vllm#7374, sgl-project/sglang#36822
    """
    degree = settings.tensor_parallel
    if degree == 1 or (settings.engine is not None and settings.engine not in BREAKING_ENGINES):
        return
    for example, members in modules.classes():
        scheme = declaration.scheme_for(example.name)
        stored = example.form.scheme
        if scheme is None or scheme.act_order != "group" or stored is None or not stored.group_size:
            continue
        if role_of(example.template) is not Role.ROW or stored.strategy != "group":
            continue
        key = declared_key(declaration, example.name, "act_order")
        for module in members:
            yield Finding(
                location=module.place(file=declaration.file, key=key),
                message=_message(key, module.name, degree),
                severity=None if degree is not None else Severity.INFO,
                measured={"tensor_parallel": degree} if degree is not None else {},
                bound={"tensor_parallel": 1},
                fix=Fix(id="quantize-without-act-order", safe=False),
                fold="act order",
            )


def _message(key: str, module: str, degree: int | None) -> str:
    ranks = f"{degree} ranks" if degree is not None else "more than one rank"
    return (
        f"{key} asks for activation order; {module} is cut along its shuffled inputs by {ranks}, which some engines "
        "get wrong"
    )
