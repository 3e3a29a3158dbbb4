"""QNT114: the output head or the embedding holds codes although both are one weight."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.architectures.interface import Architecture
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.registry import check

ENDS = ("model.embed_tokens", "lm_head")
"""Canonical names of the tied pair; the copies in prediction layers are not meant."""

OWN_READERS = ("mlx", "exl")
"""MLX multiplies with the quantised embedding itself; ExLlama always stores a head of its own."""


@check("QNT114", symptom_of=("CKP101", "CKP102", "CKP105"))
def tied_head_quantized(
    modules: Modules,
    model_config: ModelConfig,
    is_gguf: bool,
    architecture: Architecture | None = None,
    declaration: Declaration | None = None,
) -> Iterator[Finding]:
    """The output head or the embedding is stored as codes although the config ties them into one plain weight.

    ## What it looks for
    With `tie_word_embeddings` (of the text model) true, the embedding and the head are the same tensor. Neither may
    then be stored as codes, and the pair may not be stored in two forms.

    ## Why output turns to garbage
    Embedding lookup needs plain rows. An engine that ties the two drops the quantised copy, or reads its codes as rows,
    or allocates a plain head that nothing fills; which of them depends on the order in which names are loaded.

    ## What you will see
    One token repeated ("!!!!"), uniform logits (perplexity close to the size of the vocabulary), or an error about a
    weight that the head does not have.

    ## How to tell it from its look-alikes
    A quantised head in a model with `tie_word_embeddings` false is a legal choice. A plain head beside a plain
    embedding while the flag is true is CFG105. GGUF stores embeddings of tied models quantised by design; so does
    MLX, and ExLlama stores a head of its own: all three are silent. torchao is silent where its config includes both
    ends.

    ## How to confirm
    Compare `lm_head` and `embed_tokens` in the shard headers, and the flag at both levels of the config.

    ## How to repair it
    Put the plain embedding back from the source and drop the quantised copy, or set the flag to false and store both.
    The second changes the model's size and needs a quantised head that engines read: not safe unattended.

    ## References
    vllm-project/llm-compressor#2798, vllm-project/llm-compressor#2835, huggingface/transformers#37905,
    intel/auto-round#1040, sgl-project/sglang#35358
    """
    tied = architecture.tied if architecture is not None else model_config.values.get("tie_word_embeddings") is True
    if not tied or is_gguf or _includes_ends(declaration):
        return
    pair = {name: modules.by_canonical.get(name) for name in ENDS}
    for name, module in pair.items():
        if module is None or not module.form.is_quantized or module.form.format.startswith(OWN_READERS):
            continue
        other = next((twin for twin_name, twin in pair.items() if twin_name != name), None)
        yield _finding(module, other)


def _includes_ends(declaration: Declaration | None) -> bool:
    return declaration is not None and declaration.raw.get("include_input_output_embeddings") is True


def _finding(module: StoredModule, other: StoredModule | None) -> Finding:
    beside = "its twin is not stored" if other is None else f"{other.any_part.name} is {other.form.format}"
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name} is stored as {module.form.format} codes although tie_word_embeddings is true; "
        f"{beside}",
        measured={"format": module.form.format, "twin_format": other.form.format if other is not None else None},
        bound={"format": "plain"},
        fix=Fix(id="restore-plain-weight", safe=False),
    )
