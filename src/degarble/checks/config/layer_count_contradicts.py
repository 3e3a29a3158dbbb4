"""CFG103: the layers on disk are not the layers of the config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.architectures.interface import MAX_LAYERS, Architecture
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check

KEY = "num_hidden_layers"
DECODER = "model.layers.{layer}."
PREDICTION = ("eh_proj", "enorm", "hnorm", "shared_head.norm")
"""Modules of a multi-token prediction layer that a decoder layer does not have."""

CORRECT_COUNT = Fix(id="correct-config-key", safe=False)
FETCH = Fix(id="fetch-file", safe=False)

Layers = Mapping[int, set[str]]
"""Layer -> modules in it, below the layer's name."""


@check("CFG103", symptom_of=("CKP101", "CKP102", "CKP103", "CKP105"))
def layer_count_contradicts(
    modules: Modules, model_config: ModelConfig, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """The number of decoder layers on disk is not the number the config gives, or one in between is gone.

    ## What it looks for
    The layer numbers in tensor names against `num_hidden_layers` (in GGUF `block_count`, less the prediction layers):
    layers missing at the end, layers too many, layers of which nothing is left in the middle. Layers of multi-token
    prediction are numbered behind the decoder's: those that the config declares are expected there, and their absence
    is information, since speculation only runs slower without them.

    ## Why output turns to garbage
    Layers that are built and never filled compute with uninitialised memory. Layers that are stored and never built
    are left out, and the rest of the network gets hidden states it was not trained on.

    ## What you will see
    Too few: token soup, or NaN. Too many or a smaller count in the config: fluent text that does not follow the prompt,
    the more so the more layers are dropped.

    ## How to tell it from its look-alikes
    A lost shard (CKP102) takes whole layers with it and explains this finding. Single modules of a layer are CFG104.
    Pruned and depth-expanded models are consistent: their config says the new number.

    ## How to confirm
    List the distinct numbers behind `layers.` in the tensor names.

    ## How to repair it
    If layers are lost, fetch the files again. If the config is wrong, correct the number: not safe unattended, because
    the headers cannot tell which of the two happened.

    ## References
    aprender#2535 (a complete MoE file called truncated), DeepSeek-V3 README_WEIGHTS.md (numbering of prediction layers)
    """
    declared = model_config.text.get(KEY)
    stored = _stored(modules)
    if isinstance(declared, bool) or not isinstance(declared, int) or not 0 < declared <= MAX_LAYERS or not stored:
        return
    prediction = set(architecture.mtp_layers) if architecture is not None else set()
    prediction -= {layer for layer, below in stored.items() if not _is_prediction(below)}
    extra = sorted(layer for layer in stored if layer >= declared and layer not in prediction)
    undeclared = [layer for layer in extra if _is_prediction(stored[layer])]
    extra = [layer for layer in extra if layer not in undeclared]
    absent = [layer for layer in range(declared) if layer not in stored]
    last = max((layer for layer in stored if layer not in prediction and layer not in undeclared), default=-1)
    tail = [layer for layer in absent if layer > last]
    place = model_config.place(KEY)
    if extra or tail:
        yield _count(place, declared, last + 1, extra or tail, modules)
    yield from _gaps(place, [layer for layer in absent if layer not in tail], declared, modules)
    yield from _prediction(model_config, sorted(prediction - set(stored)), undeclared)


def _stored(modules: Modules) -> Layers:
    layers: dict[int, set[str]] = {}
    for example, members in modules.classes():
        if example.canonical is None or not example.template.startswith(DECODER):
            continue
        below = example.template.removeprefix(DECODER)
        for layer in {module.layer for module in members}:
            if layer is not None:
                layers.setdefault(layer, set()).add(below)
    return layers


def _is_prediction(below: set[str]) -> bool:
    return any(name in below for name in PREDICTION)


def _count(place: Location, declared: int, found: int, layers: list[int], modules: Modules) -> Finding:
    is_short = found < declared
    files = {module.layer: module.any_part.file for module in modules.values()} if not is_short else {}
    each = tuple(Location(file=files.get(layer, place.file), key=place.key, layer=layer) for layer in layers)
    span = f"{layers[0]} to {layers[-1]}" if len(layers) > 1 else str(layers[0])
    what = f"layer {span} not stored" if is_short else f"layer {span} stored and not declared"
    return Finding(
        location=place,
        places=(place, *each),
        message=f"{place.file}: {place.key} makes {declared} decoder layers, {found} are on disk ({what})",
        measured={"layers_on_disk": found},
        bound={"layers": declared},
        fix=FETCH if is_short else CORRECT_COUNT,
    )


def _gaps(place: Location, gaps: list[int], declared: int, modules: Modules) -> Iterator[Finding]:
    files = {module.any_part.file for module in modules.values()} if gaps else set()
    file = next(iter(files)) if len(files) == 1 else None
    for layer in gaps:
        yield Finding(
            location=Location(file=file, key=place.key, layer=layer),
            message=f"nothing of layer {layer} is stored, although {declared} layers are declared and later ones are",
            measured={"tensors_in_layer": 0},
            bound={"layers": declared},
            fix=FETCH,
            fold="gap",
        )


def _prediction(config: ModelConfig, absent: list[int], undeclared: list[int]) -> Iterator[Finding]:
    """Both ways, the decoder itself is complete."""
    place = config.place("num_nextn_predict_layers")
    for layers, what in ((absent, "declared and not stored"), (undeclared, "stored and not declared")):
        if layers:
            yield Finding(
                location=Location(file=place.file, key=place.key, layer=layers[0]),
                message=f"{len(layers)} multi-token prediction layers are {what} (layer {layers[0]}): "
                "speculative decoding does without, the model itself is whole",
                severity=Severity.INFO,
                measured={"layers": len(layers)},
                bound={"layers": 0},
            )
