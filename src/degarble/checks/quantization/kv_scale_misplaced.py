"""QNT121: scales of the KV cache under names at which no engine looks."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.stray_kv_scales import StrayKvScale
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check

MOVE = Fix(id="move-kv-scale", safe=True)


@check("QNT121", severity=Severity.WARNING, symptom_of=("CKP105", "CFG110"))
def kv_scale_misplaced(stray_kv_scales: tuple[StrayKvScale, ...]) -> Iterator[Finding]:
    """A scale of the KV cache is stored, but not where engines look for it, so it is read by nobody.

    ## What it looks for
    Stored `k_scale`, `v_scale`, `kv_scale` and zero points of a layer whose owner is neither the attention module of
    that layer, nor its key or value projection, nor the object that engines put between. The attention module is the
    parent of the layer's key and value projections.

    ## Why output turns to garbage
    Engines rewrite the name, look it up among the model's parameters, and drop what they do not find with one line in
    the log. The scale is then 1.0. If all layers lose theirs, most models bear it in an FP8 cache (a warning); if only
    some do, those layers' keys are cut off or lose precision beside right ones, and one of a pair without the other
    stops an engine (an error).

    ## What you will see
    `Found k_scale in the checkpoint, but not found the expected name in the model` once, not for each layer; then
    answers that get worse with length, as without scales.

    ## How to tell it from its look-alikes
    Scales that are nowhere are QNT117. Wrong values are WGT224. `self_attn.k_scale`, `self_attn.k_proj.k_scale` and
    `self_attn.attn.k_scale` are all read. A layer without a key or value projection of a known name is not judged.

    ## How to confirm
    Search the engine's log for `scaling factor 1.0` or `not found the expected name`.

    ## How to repair it
    Rename the tensors; their bytes stay. Safe where the layer has one attention module and nothing is stored under the
    right name yet. Two different values for one place are a judgement.

    ## References
    sgl-project/sglang#20705, vllm-project/vllm#46264; vLLM `weight_utils.py` `maybe_remap_kv_scale_name`
    """
    for stray in stray_kv_scales:
        owner = stray.info.name.rpartition(".")[0]
        here = Location(file=stray.info.file, tensor=stray.info.name, module=owner, layer=stray.layer)
        where = stray.home or "one of several attention modules"
        yield Finding(
            location=here,
            places=(here, _place(stray, stray.home)) if stray.home is not None else (),
            message=f"{stray.info.name} is read by no engine: the {stray.kind} of layer {stray.layer} belongs at "
            f"{where}, and is taken as 1.0",
            severity=Severity.ERROR if stray.layers_in_place else None,
            measured={"stored": stray.info.name, "layers_with_it_in_place": stray.layers_in_place},
            bound={"read_at": stray.home or "the attention module"},
            fold="misplaced",
            fix=MOVE,
        )


def _place(stray: StrayKvScale, home: str) -> Location:
    """Where it should be, so that what misses it there is explained."""
    return Location(file=stray.info.file, tensor=home, module=home.rpartition(".")[0], layer=stray.layer)
