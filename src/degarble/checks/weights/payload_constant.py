"""WGT204: a weight matrix that holds one value throughout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.dead_outputs import DeadOutputs
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

JUDGED = ("linear", "router", "embedding", "head")
MIN_VALUES = 64
"""Fewer numbers may well be equal."""
ADAPTERS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B")
"""An adapter starts with zeros on one side."""


@check("WGT204", level=Level.CONTENT, symptom_of=("WGT201", "WGT202", *DAMAGED_FILE, *WRONG_READING))
def payload_constant(
    modules: Modules,
    profiles: Mapping[str, TensorProfile],
    module_profiles: Mapping[str, ModuleProfile],
    dead_outputs: Mapping[str, DeadOutputs],
) -> Iterator[Finding]:
    """A weight matrix, embedding, head or router holds one value or one code throughout.

    ## What it looks for
    Matrices whose bytes repeat one pattern (0x88 in packed INT4 means zero everywhere), whose numbers are all zero, or
    whose codes all stand for zero while zero points differ; and in fused tensors single experts of that kind. All
    bytes are read. Norms, biases and other vectors are not judged: theirs may be constant. Healthy: none of 1,742
    matrices measured is constant.

    ## Why output turns to garbage
    The module computes nothing that depends on its input. A zero router chooses experts by number, not by token. It
    happens where a module was created and never filled, where a mapping missed it during quantisation, or where a
    download left a hole.

    ## What you will see
    Often little: one zero layer of a 135M model leaves the answer "Paris" (KL 0.12, healthy 4-bit weights 0.25). A
    zero head gives uniform logits (perplexity the size of the vocabulary) and one token repeated.

    ## How to tell it from its look-alikes
    Adapters start with a zero matrix and are left out, as are vectors. Blocks that were added to deepen a model and
    never trained have a zero o_proj and down_proj on purpose: ask the model's card. Zero scales over living codes are
    WGT202, some dead rows WGT205. Matrices of other towers are warnings.

    ## How to confirm
    Print the smallest and the largest byte of the tensor.

    ## How to repair it
    Copy the tensor from the source and quantise it again. If the source is constant too, nothing was lost by the
    conversion. Not safe unattended.

    ## References
    vllm-project/llm-compressor#1765, vllm-project/vllm-omni#5573
    """
    for module in modules.values():
        payload = module.payload
        if payload is None or not _is_judged(module):
            continue
        profile, sampled = profiles.get(payload.name), module_profiles.get(module.name)
        dead = dead_outputs.get(module.name)
        what = _constant(module, profile, sampled, dead)
        if what is not None:
            yield _finding(module, what, None)
        elif profile is not None and len(module.form.shape or ()) == 3:
            yield from _experts(module, profile)


def _is_judged(module: StoredModule) -> bool:
    payload, leaf = module.payload, module.name.rpartition(".")[2]
    if payload is None or payload.nbytes < MIN_VALUES or any(part in ADAPTERS for part in module.name.split(".")):
        return False
    is_matrix = len(module.form.shape or payload.shape) >= 2
    if module.kind in JUDGED:
        return is_matrix
    return (
        module.kind == "unknown" and is_matrix and (module.form.is_quantized or leaf.endswith(("proj", "fc1", "fc2")))
    )


def _constant(
    module: StoredModule, profile: TensorProfile | None, sampled: ModuleProfile | None, dead: DeadOutputs | None
) -> str | None:
    if profile is not None and profile.constant is not None:
        is_zero = profile.constant == 0 or profile.is_zero
        return "zero in every byte" if is_zero else f"the pattern 0x{profile.constant & 0xFFFFFFFF:08x} throughout"
    if profile is not None and profile.is_zero:
        return "zero in every block" if module.form.format == "gguf" else "zero in every value"
    if not module.form.is_quantized:
        return None
    if dead is not None and dead.count >= dead.num_outputs > 0:
        return "zero in every code, each over its own zero point"
    codes = sampled.codes if sampled is not None else None
    if codes is not None and np.count_nonzero(codes.histogram) == 1 and _is_one_code(module):
        return f"code {int(np.argmax(codes.histogram))} throughout"
    return None


def _is_one_code(module: StoredModule) -> bool:
    try:
        codes = module.codes()
    except (ValueError, NotImplementedError):
        return False
    return bool(codes.size and codes.min() == codes.max())


def _experts(module: StoredModule, profile: TensorProfile) -> Iterator[Finding]:
    """Experts of a fused tensor, by their rows."""
    experts, outputs = shape_of(module)[0], shape_of(module)[1]
    rows_each = profile.num_rows // max(experts, 1)
    if rows_each < 1 or profile.num_rows != rows_each * experts:
        return
    rows = np.array(sorted({*profile.zero_rows.first, *profile.constant_rows.first}), np.int64)
    counts = np.bincount(rows // rows_each, minlength=experts) if rows.size else np.zeros(experts, np.int64)
    for expert in np.flatnonzero(counts == rows_each).tolist():
        yield _finding(module, f"constant in all {outputs} rows of expert {expert}", expert)


def _finding(module: StoredModule, what: str, expert: int | None) -> Finding:
    place: Location = module.place()
    if expert is not None:
        place = replace(place, expert=expert)
    is_other = module.kind == "unknown"
    tensor = module.any_part
    return Finding(
        location=place,
        message=f"{tensor.name} ({module.form.format}, {list(module.form.shape or tensor.shape)}) is {what}: "
        "its output does not depend on its input",
        severity=Severity.WARNING if is_other else None,
        confidence=Confidence.LIKELY if is_other else None,
        measured={"distinct_values": 1},
        bound={"distinct_values_min": 2},
        fold="constant",
        fix=Fix(id="restore-module", safe=False),
    )
