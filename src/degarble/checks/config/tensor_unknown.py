"""CFG110: a tensor under a name that no loader of this architecture maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher

import numpy as np

from degarble.evidence.disk_names import DiskNames
from degarble.evidence.modules import Modules
from degarble.evidence.parameters import Missing, Parameters, Unknown, is_expert_stack
from degarble.evidence.presence_key import PresenceKey
from degarble.evidence.shape_disputes import is_same_shape
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import Level, check

SILENT = (
    "lora_",
    "inv_freq",
    "rotary_emb",
    "masked_bias",
    "attn.bias",
    ".attention.bias",
    "rope_freqs",
    "position_ids",
)
"""Parts of names that stand for adapters and for buffers of old versions."""

OTHER_HEADS = ("score", "classifier", "v_head", "value_head", "reward_head", "regression_head", "qa_outputs")
SIMILAR = 0.75
"""Share of equal characters from which two names count as spellings of one; `k_proj` and `v_proj` reach 0.83, but one
of the two is then not missing."""
MAX_BIASES = 512
"""Unknown biases of one template that are read: GPTQ writes one for each linear."""

RENAME = Fix(id="rename-tensor", safe=False)
RENAME_EXPERTS = Fix(id="rename-experts", safe=False)
CAUSES = ("CKP101", "CKP102", "CKP105", "CFG102", "CFG103")


@check("CFG110", severity=Severity.WARNING, symptom_of=CAUSES)
def tensor_unknown(
    parameters: Parameters, disk_names: DiskNames, modules: Modules, presence_key: PresenceKey | None = None
) -> Iterator[Finding]:
    """A tensor has a name that the architecture's loaders do not know, so nobody reads it.

    ## What it looks for
    Stored names of the text model that match no parameter of the family. If a parameter that the family needs is
    missing in the same layer, under the same parent or under a similar name, and its shape fits, the tensor is that
    parameter under a wrong name: an error. Otherwise it is only not read: a warning.

    ## Why output turns to garbage
    Loaders walk over names. What they do not recognise they skip, mostly without a word, and the layer that should have
    received it keeps what its memory held.

    ## What you will see
    The model loads. Benchmarks fall by half or more (82 to 25 on MMLU where fused experts were written without
    `weight_` in their names), or text is soup, if attention is concerned.

    ## How to tell it from its look-alikes
    Zero biases that GPTQ tools add to every linear, rotary buffers, scales of the KV cache, adapters, other heads and
    other towers are legal and silent. Layers and experts beyond the config's count are CFG103 and CFG102. A family that
    degarble does not know is not judged.

    ## How to confirm
    Search the loader's mapping, or the source model's index, for the name.

    ## How to repair it
    Rename the tensors to the names of the source model (values stay), or export again with a fixed tool. Not safe
    unattended: for fused parts the order inside matters as well. Stacks of experts are renamed, or cut into the
    matrices of single experts; that is safe only where their number and shapes leave one answer.

    ## References
    vllm-project/llm-compressor#2939, vllm-project/llm-compressor#3069
    """
    if presence_key is not None and parameters.missing:
        return  # one key of the config explains what is unknown and what is missing: CFG104 names it
    for parent, unknown in _by_parent(parameters).items():
        missing = (*parameters.missing, *((parameters.head,) if parameters.head is not None else ()))
        explained = list(_explained(parent, unknown, missing, disk_names))
        for item in unknown:
            yield from _findings(item, explained, parameters, disk_names, modules)


@check("CFG110", severity=Severity.WARNING, level=Level.CONTENT, symptom_of=CAUSES)
def bias_unknown(parameters: Parameters) -> Iterator[Finding]:
    """A bias that the architecture does not have, with values in it; all-zero ones change nothing."""
    for item in parameters.unknown:
        if not item.is_bias:
            continue
        for module in item.members[:MAX_BIASES]:
            info = module.part("bias")
            if info is None or not info.dtype.startswith(("F", "BF")) or not np.any(module.array("bias")):
                continue
            yield Finding(
                location=_place(item, module),
                message=f"{info.name} holds values, and {parameters.architecture.model_type} with this config has no "
                "bias there: loaders drop it",
                measured={"dtype": info.dtype},
                bound={"biases": 0},
                fix=RENAME,
                fold=item.template,
            )


def _by_parent(parameters: Parameters) -> Mapping[str, list[Unknown]]:
    """Unknown modules that are siblings explain missing siblings together."""
    found: dict[str, list[Unknown]] = {}
    for item in parameters.unknown:
        example = item.members[0]
        members = tuple(module for module in item.members if _is_judged(module, parameters))
        if item.is_bias or not members or example.form.format == "companions":
            continue
        parent = item.template.rpartition(".")[0]
        found.setdefault(parent, []).append(Unknown(template=item.template, members=members))
    return found


def _is_judged(module: StoredModule, parameters: Parameters) -> bool:
    architecture = parameters.architecture
    name = module.canonical or module.name
    if any(mark in name for mark in SILENT) or name.partition(".")[0] in OTHER_HEADS or name.startswith("mtp."):
        return False
    return module.layer is None or module.layer < architecture.num_layers


def _explained(parent: str, unknown: list[Unknown], missing: Iterable[Missing], names: DiskNames) -> Iterator[Missing]:
    """Missing parameters that these unknown siblings may be."""
    for item in missing:
        if item.is_bias:
            continue
        is_sibling = item.module.rpartition(".")[0] == parent
        if any((is_sibling or _is_similar(u, item, names)) and _fits(u, item) for u in unknown):
            yield item


def _is_similar(unknown: Unknown, missing: Missing, names: DiskNames) -> bool:
    """Compared as they are, or would be, spelled in the file."""
    module = unknown.members[0]
    position = next((found for found in missing.positions if found[0] == module.layer), missing.positions[0])
    mine, wanted = module.name, names.module(missing.module, position)
    one, other = mine.rpartition(".")[2], wanted.rpartition(".")[2]
    if mine.rpartition(".")[0] == wanted or one == other or one.startswith(other) or other.startswith(one):
        return True
    return SequenceMatcher(None, one, other).ratio() >= SIMILAR


def _fits(unknown: Unknown, missing: Missing) -> bool:
    """Same layers, and the same shape where headers tell it."""
    here = {(module.layer, module.expert) for module in unknown.members}
    layers = {layer for layer, _ in here}
    if not any(layer in layers for layer, _ in missing.positions):
        return False
    if unknown.template.startswith(missing.module):
        return True  # something was appended: a packed part has another shape
    shape = unknown.members[0].form.shape
    is_codes = unknown.members[0].form.format in ("plain", "unknown") and not _is_float(unknown.members[0])
    return shape is None or is_codes or not missing.template.dims or is_same_shape(shape, missing.template.shape)


def _is_float(module: StoredModule) -> bool:
    return module.any_part.dtype in ("F16", "BF16", "F32") or module.any_part.dtype.startswith("GGUF:")


def _findings(
    item: Unknown, explained: list[Missing], parameters: Parameters, names: DiskNames, modules: Modules
) -> Iterator[Finding]:
    lost = {(position, found.module): found for found in explained for position in found.positions}
    by_place: dict[tuple[int | None, int | None], list[Missing]] = {}
    for (position, _), found in lost.items():
        by_place.setdefault(position, []).append(found)
    for module in item.members:
        mine = [(position, found) for position, all_found in _near(module, by_place) for found in all_found]
        place = _place(item, module)
        absent = [names.place(found, position) for position, found in mine] or _incomplete(module, modules)
        kind = parameters.architecture.model_type
        is_stack = is_expert_stack(module)
        if absent:
            message = (
                f"no loader of {kind} maps {place.tensor}, and {', '.join(str(p.module) for p in absent[:3])} "
                f"{'are' if len(absent) > 1 else 'is'} missing there"
            )
        else:
            message = f"no loader of {kind} maps {place.tensor}: it is not read"
        yield Finding(
            location=place,
            places=(place, *absent) if absent else (),
            message=message,
            severity=Severity.ERROR if absent else None,
            measured={"missing_beside_it": len(absent)},
            bound={"unknown": 0},
            fix=RENAME_EXPERTS if is_stack else RENAME,
            fold="experts" if is_stack else item.template.rpartition(".")[0],
        )


def _incomplete(module: StoredModule, modules: Modules) -> list[Location]:
    """A part under a known module that lacks one: `q_proj.packed` beside scales without codes."""
    owner = modules.get(module.name.rpartition(".")[0])
    if owner is None or owner.canonical is None or (owner.payload is not None and not owner.form.missing):
        return []
    return [owner.place()]


def _near(
    module: StoredModule, by_place: Mapping[tuple[int | None, int | None], list[Missing]]
) -> Iterator[tuple[tuple[int | None, int | None], list[Missing]]]:
    """The same layer and expert; or all of the layer, where one of the two is not split by expert."""
    exact = (module.layer, module.expert)
    if exact in by_place:
        yield exact, by_place[exact]
        return
    for position, found in by_place.items():
        if position[0] == module.layer and (module.expert is None) != (position[1] is None):
            yield position, found


def _place(item: Unknown, module: StoredModule) -> Location:
    return module.place("bias") if item.is_bias else module.place()
