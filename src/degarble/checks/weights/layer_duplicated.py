"""WGT220: two layers, experts or modules with the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from degarble.architectures.interface import Architecture
from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.evidence.modules import Modules
from degarble.evidence.twins import Twins
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import Level, check

BY_DESIGN = 3
"""From so many copied layers on, the model was made that way: merges and deepened models repeat whole runs."""
RESTORE = Fix(id="restore-module", safe=False)


@check("WGT220", level=Level.CONTENT, symptom_of=("WGT204", "CKP107", *DAMAGED_FILE))
def layer_duplicated(modules: Modules, twins: Twins, architecture: Architecture | None = None) -> Iterator[Finding]:
    """Two layers, two experts of a layer, or two modules hold bit-identical weights.

    ## What it looks for
    Equal payloads among all linears and routers of the decoder: first by a digest of their heads, then byte for byte,
    so a finding is proof. All linears of a layer equal to an earlier layer's, all of an expert's equal to another's in
    the layer (in fused tensors too), or single modules. No pair among 1,742 healthy matrices measured is equal.

    ## Why output turns to garbage
    A shard was written twice, a loop used the wrong index, or a rename mapped two sources to one name: one set of
    weights took the place of another, which is lost.

    ## What you will see
    Fluent text that gets worse, or repetition; a copied expert shows only in some prompts. Small models lose a single
    layer without a change in short answers.

    ## How to tell it from its look-alikes
    Merged and deepened models repeat runs of layers on purpose: three or more copied layers are information. Models
    upcycled to experts start with equal experts: information where more than half of a layer's experts agree. Tied
    heads, the embedding and head that prediction layers repeat, norms, biases and constant matrices (WGT204) are not
    compared.

    ## How to confirm
    Hash both tensors here and in the source model: there they differ.

    ## How to repair it
    Copy the lost module from the source and quantise it again. Which of the two is the copy cannot be told from this
    file, so nothing is done unattended.

    ## References
    No published case is known to us; the check follows from comparing payloads of healthy models, none of which
    repeat.
    """
    predicted = frozenset(architecture.mtp_layers) if architecture is not None else frozenset[int]()
    is_design = len(twins.layers) >= BY_DESIGN
    for later, first in sorted(twins.layers.items()):
        yield _layer(twins, later, first, is_design or later in predicted)
    for (layer, expert), first in sorted(twins.experts.items()):
        copies = sum(1 for number, _ in twins.experts if number == layer)
        if layer not in twins.layers:
            yield _expert(twins, layer, expert, first, (copies + 1) * 2 > twins.num_experts[layer])
    for module, expert, first, total in twins.slices:
        copies = sum(1 for other, *_ in twins.slices if other is module)
        place = replace(module.place(), expert=expert)
        yield _finding([place], f"expert {expert} of {module.name}", f"expert {first}", (copies + 1) * 2 > total)
    counts: dict[str, int] = {}
    for copy, _ in twins.modules:
        counts[copy.template] = counts.get(copy.template, 0) + 1
    for copy, original in twins.modules:
        shared = counts[copy.template] >= BY_DESIGN or copy.layer in predicted
        yield _finding([copy.place(), original.place()], copy.any_part.name, original.any_part.name, shared)


def _layer(twins: Twins, later: int, first: int, is_design: bool) -> Finding:
    members = [*twins.by_layer[later], *twins.by_layer[first]]
    return _finding(_places(members), f"layer {later}", f"layer {first}", is_design)


def _expert(twins: Twins, layer: int, expert: int, first: int, is_design: bool) -> Finding:
    members = [m for number in (expert, first) for m in twins.by_layer[layer] if m.expert == number]
    return _finding(_places(members), f"expert {expert} of layer {layer}", f"expert {first}", is_design)


def _places(members: Iterable[StoredModule]) -> list[Location]:
    return [module.place() for module in members]


def _finding(places: list[Location], copy: str, original: str, is_design: bool) -> Finding:
    return Finding(
        location=places[0],
        message=f"{copy} holds the same bytes as {original}"
        + (": by design, as so many others do" if is_design else ": one of them took the place of other weights"),
        severity=Severity.INFO if is_design else None,
        places=tuple(places) if len(places) > 1 else (),
        measured={"copy": copy, "original": original},
        bound={"equal_payloads": 0},
        fold="by design" if is_design else None,
        fix=None if is_design else RESTORE,
    )
