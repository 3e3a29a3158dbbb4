"""CFG108: the declared dtype is not the dtype of the stored plain weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from degarble.checkpoint.interface import num_elements
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

KEYS = ("dtype", "torch_dtype")
"""transformers 5 writes the first, everything older the second."""

SPELLINGS = {
    "bfloat16": "BF16",
    "bf16": "BF16",
    "float16": "F16",
    "half": "F16",
    "fp16": "F16",
    "float32": "F32",
    "float": "F32",
    "fp32": "F32",
    "float64": "F64",
}
JUDGED = ("linear", "head", "embedding")
"""Norms, routers and biases are kept in fp32 on purpose by many models."""

CORRECT_DTYPE = Fix(id="correct-config-key", safe=True)


@check("CFG108", severity=Severity.WARNING, symptom_of=("CKP101", "CKP102", "CKP105", "CKP110"))
def dtype_contradicts(modules: Modules, model_config: ModelConfig, is_gguf: bool) -> Iterator[Finding]:
    """The config declares one floating-point type, and most plain weights are stored in another.

    ## What it looks for
    `dtype` (or `torch_dtype`, at both levels of the config) against the type that most elements of plain linears,
    embeddings and the head have. Norms, routers, biases and scales are not counted: they are often fp32 or fp16 on
    purpose. The two spellings are also held against each other.

    ## Why output turns to garbage
    Engines take the declared type as the type to compute in. Weights trained in bf16 and served in fp16 overflow where
    activations pass 65504; weights stored in fp16 and served in bf16 lose three bits of every mantissa.

    ## What you will see
    Often nothing. With fp16 over bf16 weights: NaN, empty answers or one token repeated, on long prompts first.

    ## How to tell it from its look-alikes
    fp32 norms beside bf16 weights, fp16 scales of GPTQ and AWQ, and checkpoints whose plain weights are a mixture
    without a majority are legal and silent. Integer-quantised checkpoints of tools that declare fp16 for their kernels
    and keep bf16 embeddings are healthy as such; the finding is a warning because the cast is the engine's choice.

    ## How to confirm
    Read the dtype of `embed_tokens.weight` in the shard header.

    ## How to repair it
    Declare what is stored. Safe unattended: the values do not change, only the type engines choose by default.

    ## References
    NUM301 measures whether the fp16 range is enough
    """
    if is_gguf:
        return
    declared = list(_declared(model_config))
    if len({dtype for _, dtype in declared}) > 1:
        yield _spellings(model_config, declared)
        return
    counts: Counter[str] = Counter()
    examples: dict[str, StoredModule] = {}
    for example, members in modules.classes():
        payload = example.payload
        if example.canonical is None or example.kind not in JUDGED or example.form.format != "plain" or payload is None:
            continue
        counts[payload.dtype] += num_elements(payload.shape) * len(members)
        examples.setdefault(payload.dtype, example)
    if not counts or not declared:
        return
    stored, elements = counts.most_common(1)[0]
    key, dtype = declared[0]
    if stored == dtype or elements * 2 <= counts.total():
        return
    tensor = examples[stored].any_part
    place = Location(file=model_config.file, key=key, tensor=tensor.name, module=examples[stored].name)
    share = elements / counts.total()
    yield Finding(
        location=place,
        places=(place, Location(file=model_config.file, key=key)),
        message=f"{model_config.file}: {key} declares {dtype}, and {share:.0%} of the plain weights are "
        f"stored in {stored}, such as {tensor.name}",
        measured={"stored": stored, "share": round(share, 3)},
        bound={"declared": dtype},
        fix=CORRECT_DTYPE,
    )


def _declared(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Dotted key and safetensors spelling, the language model's level first; other values are not judged."""
    levels = [(config.text, config.places)]
    if config.text is not config.values:
        levels.append((config.values, {}))
    for values, places in levels:
        for name in KEYS:
            value = values.get(name)
            spelled = SPELLINGS.get(value.removeprefix("torch.").lower()) if isinstance(value, str) else None
            if spelled is not None:
                yield places.get(name, name), spelled


def _spellings(config: ModelConfig, declared: list[tuple[str, str]]) -> Finding:
    said = ", ".join(f"{key} is {dtype}" for key, dtype in declared)
    return Finding(
        location=Location(file=config.file, key=declared[-1][0]),
        places=tuple(Location(file=config.file, key=key) for key, _ in reversed(declared)),
        message=f"{config.file}: {said}; which one an engine obeys depends on its version",
        measured={"dtypes": [dtype for _, dtype in declared]},
        bound={"dtypes": 1},
        fix=Fix(id="correct-config-key", safe=False),
    )
