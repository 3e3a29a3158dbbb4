"""QNT109: the config promises codes, and a plain weight is stored."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.architectures.interface import Architecture
from degarble.evidence.declared_form import DeclaredForms, Promise, is_mtp, is_plain_matrix, skip_key
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.registry import check

KINDS = frozenset({"linear", "head"})

LENIENT_METHODS = frozenset({"torchao", "quanto"})
"""Their loaders swap tensors, not layers: a plain weight is taken as it is, and runs unquantised."""

EXPLAINED_BY = (
    "CKP101", "CKP102", "CKP103", "CKP105", "CFG110", "QNT106", "QNT107", "QNT110", "QNT114", "QNT120",
)  # fmt: skip


@check("QNT109", symptom_of=EXPLAINED_BY)
def stored_plain_but_declared_quantized(
    modules: Modules, declared_forms: DeclaredForms, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """A weight is stored plain, the config declares it quantised, and no engine's reading of the skip list spares it.

    ## What it looks for
    Linear weights and the output head of the text model that are stored in fp16, bf16 or fp32 although the config gives
    them a scheme. A module is spared if the method itself never converts it (native FP8 leaves embeddings, head,
    router, norms and the prediction layer's projection alone; compressed-tensors leaves nothing alone that is not
    listed), or if any engine's reading of the skip list matches it: then only the readings differ, which is QNT107.

    ## Why output turns to garbage
    The engine builds a quantised layer, finds no codes for it, and either stops with a missing key or leaves the layer
    as it was allocated. Some loaders cast the plain values into the code's type and then apply scales that were never
    stored.

    ## What you will see
    A KeyError that names the first such module; or a model that loads and answers with soup. With bitsandbytes an
    assertion about a missing quantisation state. torchao and quanto take the plain weight as it is: the layer runs
    unquantised, so there it is only a warning.

    ## How to tell it from its look-alikes
    Routers are QNT110, tied heads QNT114, prediction layers QNT120. If most declared modules are plain, the config is
    the wrong part, not the weights. The FP8 exporter of transformers leaves matrices plain whose sides the block does
    not divide, without listing them: the message says so, and the list entry is still missing. Adapters and vision
    towers are not judged. For a family that nobody described, a module counts only if its peers in other layers are
    quantised. MLX and ExLlama take each
    module as the file has it: nothing is promised there.

    ## How to confirm
    Evaluate the skip list for the module's name; `degarble check` prints the parity table under QNT107.

    ## How to repair it
    If the weight is meant to be plain, add its full name to the skip list: every engine reads full names alike, so that
    is safe unattended as long as the values are right. Otherwise quantise the module again.

    ## References
    ModelCloud/GPTQModel#2359, vllm-project/vllm#44628, vllm-project/vllm#41994, unslothai/unsloth#1380,
    huggingface/transformers#45674, vllm-project/llm-compressor#2060
    """
    governed = 0
    broken: list[StoredModule] = []
    quantized = {example.template for example, _ in modules.classes() if example.form.is_quantized}
    for example, members in modules.classes():
        if not is_judged(example, architecture):
            continue
        if example.form.is_quantized:
            governed += len(members)
        elif is_plain_matrix(example) and (architecture is not None or example.template in quantized):
            broken += [member for member in members if _is_broken(member, declared_forms, architecture)]
    is_config = len(broken) > governed
    for module in broken:
        yield _finding(module, declared_forms.declaration, is_config, len(broken), governed + len(broken))


def is_judged(module: StoredModule, architecture: Architecture | None) -> bool:
    """A linear or head of the text model, outside the prediction layers."""
    if module.canonical is None or module.kind not in KINDS:
        return False
    return not is_mtp(module, architecture)


def _is_broken(module: StoredModule, forms: DeclaredForms, architecture: Architecture | None) -> bool:
    if module.kind == "head" and architecture is not None and architecture.tied:
        return False
    return forms.of(module) is Promise.QUANTIZED


def _finding(module: StoredModule, declaration: Declaration, is_config: bool, plain: int, declared: int) -> Finding:
    payload = module.any_part
    scheme = declaration.scheme_for(module.name)
    label = scheme.label if scheme is not None else "quantised"
    lenient = declaration.method in LENIENT_METHODS
    place = module.place(
        file=declaration.file if is_config else None,
        key=declaration.key if is_config else skip_key(declaration),
    )
    return Finding(
        location=place,
        message=f"{payload.name} is stored as {payload.dtype} {list(payload.shape)}; {declaration.file} declares "
        f"{module.name} {label} and no skip list spares it{_block_note(module, declaration)}",
        severity=Severity.WARNING if lenient else None,
        confidence=Confidence.LIKELY if lenient else None,
        measured={"stored_plain": plain, "declared_quantized": declared, "dtype": payload.dtype},
        bound={"stored_plain": 0},
        fold="config" if is_config else "tensor",
        fix=Fix(id="add-skip-entry", safe=not is_config),
    )


def _block_note(module: StoredModule, declaration: Declaration) -> str:
    scheme = declaration.scheme_for(module.name)
    block, shape = scheme.block_shape if scheme is not None else None, module.any_part.shape
    if block is None or len(shape) < 2 or (shape[-2] % block[0] == 0 and shape[-1] % block[1] == 0):
        return ""
    size = f"{block[0]}x{block[1]}"
    return f" (the block {size} does not divide it, and exporters leave such weights plain: list it all the same)"
