"""CFG104: a parameter that the architecture needs is stored nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from degarble.evidence.disk_names import DiskNames
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.parameters import DECODER, Missing, Parameters
from degarble.evidence.presence_key import PresenceKey
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.registry import check

RESTORE = Fix(id="restore-parameter", safe=False)
CONTAINER_CAUSES = ("CKP101", "CKP102", "CKP103", "CKP105")
MIN_PEERS = 3
"""Layers that must agree before a fourth is called incomplete, where the architecture is not known."""


@check("CFG104", symptom_of=(*CONTAINER_CAUSES, "CFG102", "CFG103", "CFG110", "QNT102"))
def module_missing(
    parameters: Parameters,
    disk_names: DiskNames,
    model_config: ModelConfig,
    presence_key: PresenceKey | None = None,
) -> Iterator[Finding]:
    """A weight, norm, bias or expert that the architecture needs is not in any file.

    ## What it looks for
    Every parameter that the family needs with this config: projections, norms (also `q_norm` and `k_norm` of Qwen3),
    biases (also q, k and v of Qwen2), every expert, shared experts, routers and their correction biases, the embedding.
    Where a family allows several spellings (experts one by one, or fused), one complete spelling in each layer is
    enough. A quantised module of which any part is stored counts as there. If one switch of the config (biases, dense
    layers, shared experts) set otherwise would leave nothing missing and nothing unknown, that key is named.

    ## Why output turns to garbage
    Loaders that fill what they find leave the rest as it was allocated: zeros, noise, or another tensor's bytes. A lost
    bias or norm is even legal for some of them, and shifts every activation after it.

    ## What you will see
    "Some weights were newly initialized" in a log; token soup for a lost projection or norm; for a lost bias fluent
    text in which characters or languages mix (mojibake in Qwen2); for a lost expert trouble on some prompts only.

    ## How to tell it from its look-alikes
    A lost file is CKP102. All of a layer gone is CFG103. The head is CFG106. Codes without their scale are QNT101,
    scales without their codes QNT102. A tensor stored under a name that nobody maps is CFG110, which then explains
    this. Adapters alone are no model and are not judged.

    ## How to confirm
    Search the shard headers for the named tensor and for its peers in other layers.

    ## How to repair it
    Copy the tensor from the source model, quantised as its peers are. Nothing in the folder can give it back, so the
    repair is not safe unattended.

    ## References
    OminiX-ai/OminiX-MLX#7, sbryngelson/ANEForge#253, huggingface/optimum#1827,
    huggingface/text-generation-inference#2117
    """
    if presence_key is not None and parameters.missing:
        yield _switch(presence_key, parameters, disk_names, model_config)
        return
    for item in parameters.missing:
        yield from _findings(item, parameters, disk_names)


@check("CFG104", confidence=Confidence.LIKELY, symptom_of=(*CONTAINER_CAUSES, "QNT102"))
def module_missing_against_peers(modules: Modules, parameters: Parameters | None = None) -> Iterator[Finding]:
    """In a family that nobody described, a layer lacks what all its peers have, and has nothing of its own instead."""
    if parameters is not None:
        return
    layers = _modules_by_layer(modules)
    if len(layers) <= MIN_PEERS:
        return
    for layer, own in layers.items():
        others = [found for number, found in layers.items() if number != layer]
        shared = set.intersection(*(set(found) for found in others))
        if any(all(key not in found for found in others) for key in own):
            continue
        for key in sorted(shared - set(own), key=str):
            peer = others[0][key]
            name = peer.name.replace(f".{peer.layer}.", f".{layer}.", 1)
            file = next(iter(own.values())).any_part.file
            yield Finding(
                location=Location(
                    file=file, tensor=_renamed(peer, layer), module=name, layer=layer, expert=peer.expert
                ),
                message=f"{name} is not stored; all {len(others)} other layers have it",
                measured={"layers_with_it": len(others)},
                bound={"layers_with_it": len(layers)},
                fix=RESTORE,
                fold=key[0],
            )


def _switch(found: PresenceKey, parameters: Parameters, names: DiskNames, config: ModelConfig) -> Finding:
    place = config.place(found.key)
    lost = [names.place(item, position) for item in parameters.missing for position in item.positions]
    strange = [module.place() for item in parameters.unknown for module in item.members]
    also = f", and {len(strange)} stored ones are not known" if strange else ""
    return Finding(
        location=Location(file=place.file, key=place.key, tensor=lost[0].tensor, module=lost[0].module),
        places=(replace(lost[0], file=place.file, key=place.key), place, *lost, *strange),
        message=f"{len(lost)} parameters such as {lost[0].tensor} are stored nowhere{also}; with {place.key} "
        f"{str(found.proven).lower()} instead of {str(found.declared).lower()} the disk would be complete",
        measured={"absent": len(lost), "unknown": len(strange)},
        bound={"absent": 0},
        confidence=Confidence.LIKELY,
        fix=Fix(id="correct-config-key", safe=False),
    )


def _findings(item: Missing, parameters: Parameters, names: DiskNames) -> Iterator[Finding]:
    family = parameters.architecture.model_type
    total = len(item.template.layers or (None,)) * (item.template.experts or 1)
    for position in item.positions:
        place = names.place(item, position)
        spare = item.module == "model.embed_tokens" and ("lm_head" in parameters.present)
        is_copy = spare and parameters.architecture.tied
        yield Finding(
            location=place,
            message=f"{place.tensor} is stored nowhere; {family} needs it "
            f"({', '.join(item.template.dims) or 'any shape'})",
            severity=Severity.WARNING if is_copy else None,
            measured={"absent": len(item.positions)},
            bound={"needed": total},
            fix=RESTORE,
            fold=item.template.name,
        )


def _modules_by_layer(modules: Modules) -> Mapping[int, dict[tuple[str, int | None], StoredModule]]:
    layers: dict[int, dict[tuple[str, int | None], StoredModule]] = {}
    for example, members in modules.classes():
        if example.canonical is None or not example.template.startswith(DECODER):
            continue
        for module in members:
            if module.layer is not None:
                layers.setdefault(module.layer, {})[module.template, module.expert] = module
    return layers


def _renamed(peer: StoredModule, layer: int) -> str:
    part = peer.part(PAYLOAD) or peer.any_part
    return part.name.replace(f".{peer.layer}.", f".{layer}.", 1)
