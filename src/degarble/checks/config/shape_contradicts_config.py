"""CFG102: sizes in the config and shapes of tensors contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.model import ModelConfig
from degarble.evidence.shape_disputes import Contradicting, KeyDispute, ShapeDisputes
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

CORRECT_KEY = Fix(id="correct-config-key", safe=True)
FETCH = Fix(id="fetch-file", safe=False)


@check("CFG102", symptom_of=("CKP101", "CKP105", "QNT104", "QNT105"))
def shape_contradicts_config(shape_disputes: ShapeDisputes, model_config: ModelConfig) -> Iterator[Finding]:
    """A size in the config is not the size of the tensors that are computed from it.

    ## What it looks for
    The logical shape of every weight, norm and bias of the text model (for quantised weights: what codes and scales
    prove together) against the shape that follows from the config: hidden and intermediate size, heads, key-value
    heads, head size, vocabulary, experts, LoRA ranks of MLA. GGUF metadata is held to the same. Each key behind a
    contradicting axis is tried with the value that the tensor proves; the key is at fault if its new value settles
    more tensors than it unsettles. Otherwise the tensor is at fault.

    ## Why output turns to garbage
    Strict loaders refuse. Loaders that view, slice or pad what they are given read rows of the wrong head, or columns
    of the next row: every product after it is a sum over values that do not belong together.

    ## What you will see
    A size mismatch on loading; in lenient loaders token salad from the first token. A wrong number of key-value heads
    in an otherwise loadable GGUF gives text that loses its thread within a sentence.

    ## How to tell it from its look-alikes
    Wrong bits or group size (QNT104) make codes look like another width: there, plain norms and embeddings agree with
    the config. Stacks of experts are accepted with their last two axes in either order. An embedding with more rows
    than `vocab_size` is *not* padding in these files: engines pad in memory, and check the file against the config, so
    it is an error; tools that pad rows raise `vocab_size` with them. Vision towers and adapters are not judged.

    ## How to confirm
    Divide the rows of `k_proj` by `head_dim`, or look at the last axis of any norm.

    ## How to repair it
    If the config is outvoted, write the proven value under the named key: safe unattended when all tensors that depend
    on the key agree, since shapes prove it. A single odd tensor has to be fetched again.

    ## References
    ModelCloud/GPTQModel#1485, ggml-org/llama.cpp#4927
    """
    for dispute in shape_disputes.keys:
        yield _wrong_key(dispute, model_config)
    for item, key in shape_disputes.tensors:
        yield from _odd_tensors(item, key, model_config)


@check("CFG102", severity=Severity.WARNING, symptom_of=("CKP101", "CKP105"))
def vocabulary_metadata_contradicts(model_config: ModelConfig, tensors: dict[str, TensorInfo]) -> Iterator[Finding]:
    """A GGUF file's `vocab_size` pair is not the embedding's rows; most readers count the token list instead."""
    if model_config.gguf is None:
        return
    key = f"{model_config.gguf.architecture}.vocab_size"
    stated = model_config.gguf.metadata.get(key)
    embedding = tensors.get("token_embd.weight")
    if embedding is None or not embedding.shape or isinstance(stated, bool) or not isinstance(stated, int):
        return
    if stated != embedding.shape[0] and stated != model_config.values.get("vocab_size"):
        yield Finding(
            location=Location(file=model_config.file, key=key, tensor=embedding.name),
            message=f"{key} is {stated}; {embedding.name} has {embedding.shape[0]} rows",
            measured={"vocab_size": stated},
            bound={"rows": embedding.shape[0]},
            fix=CORRECT_KEY,
        )


def _wrong_key(dispute: KeyDispute, config: ModelConfig) -> Finding:
    place = config.place(dispute.key)
    example = dispute.against[0]
    module = example.members[0]
    tensors = tuple(_place(item, module, place.key) for item in dispute.against for module in item.members)
    declared = dispute.declared if isinstance(dispute.declared, (int, str)) else None
    head = Location(file=place.file, key=place.key, tensor=_part(example, module).name, module=module.name)
    return Finding(
        location=head,
        places=(head, place, *tensors),
        message=f"{place.file}: {place.key} is {declared}, and {len(tensors)} tensors that depend on it prove "
        f"{dispute.proven}: {_part(example, module).name} is {_shown(example)}, not {list(example.template.shape)}",
        measured={"value": declared, "tensors_against": len(tensors)},
        bound={"value": dispute.proven},
        fix=CORRECT_KEY,
    )


def _odd_tensors(item: Contradicting, key: str | None, config: ModelConfig) -> Iterator[Finding]:
    dotted = config.place(key).key if key is not None else None
    for module in item.members:
        yield Finding(
            location=_place(item, module, dotted),
            message=f"{_part(item, module).name} is {_shown(item)}; the config and the tensors beside it make it "
            f"{list(item.template.shape)} ({', '.join(item.template.dims)})",
            measured={"shape": list(item.found) if item.found is not None else None},
            bound={"shape": list(item.template.shape)},
            fix=FETCH,
            fold=item.witness.parameter,
        )


def _part(item: Contradicting, module: StoredModule) -> TensorInfo:
    return item.witness.part(module)


def _place(item: Contradicting, module: StoredModule, key: str | None) -> Location:
    part = _part(item, module)
    return Location(
        file=part.file, key=key, tensor=part.name, module=module.name, layer=module.layer, expert=module.expert
    )


def _shown(item: Contradicting) -> str:
    if item.found is not None:
        return str(list(item.found))
    return f"{item.witness.part(item.witness.example).nbytes:,} bytes of codes"
