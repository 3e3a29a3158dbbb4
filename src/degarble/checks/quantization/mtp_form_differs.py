"""QNT120: the multi-token prediction layer is stored in another form than the config gives it."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.architectures.interface import Architecture
from degarble.evidence.declared_form import DeclaredForms, Promise, is_mtp, is_plain_matrix, skip_key
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.registry import check

PLAIN_BY_DESIGN = frozenset({"eh_proj", "embed_tokens", "head", "fc"})
"""What joins the prediction layer to the decoder: never converted by the families' code (`fc` is Qwen's eh_proj)."""

KINDS = frozenset({"linear", "router"})


@check("QNT120", symptom_of=("CKP101", "CKP102", "CKP103", "CKP105", "CFG110", "QNT106"))
def mtp_form_differs(
    modules: Modules, declared_forms: DeclaredForms, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """The multi-token prediction layer is stored plain although the config declares it quantised, or the reverse.

    ## What it looks for
    Linear weights of the prediction layers (numbered behind the last decoder layer, or under `mtp.`) against the scheme
    and the skip lists of the config. The projection that joins hidden state and embedding, and the copies of embedding
    and head, are plain by design and not judged. Engines are given the benefit of every reading of the list.

    ## Why output turns to garbage
    Quantisers usually leave the prediction layer out, and exporters copy it over from the original: bf16 weights, or
    raw codes whose scales were left behind. An engine builds the layer by the config and reads the wrong kind of
    tensor.

    ## What you will see
    A KeyError on an expert of the last layer when speculative decoding is switched on; or correct text, an acceptance
    rate near zero, and no speed-up. Without speculative decoding the layer is never read.

    ## How to tell it from its look-alikes
    A prediction layer that is declared and absent is information only (CFG103). Quantised weights without scales are
    QNT101 there as well. A decoder layer with this contradiction is QNT109.

    ## How to confirm
    Serve with and without speculative decoding: text that is the same and drafts that are never accepted point here.

    ## How to repair it
    A plain prediction layer needs its full names on the skip list: safe unattended. A quantised one on the skip list
    needs the entry removed, which is safe only if its companions are complete.

    ## References
    vllm-project/vllm#41994, kekzl/imp#1450, radixark/miles#1641
    """
    layers = frozenset(architecture.mtp_layers if architecture is not None else ())
    for example, members in modules.classes():
        if example.kind not in KINDS or example.name.rpartition(".")[2] in PLAIN_BY_DESIGN:
            continue
        if not example.form.is_quantized and not is_plain_matrix(example):
            continue
        by_root = is_mtp(example, None)
        for module in members:
            if by_root or module.layer in layers:
                yield from _judge(module, declared_forms)


def _judge(module: StoredModule, forms: DeclaredForms) -> Iterator[Finding]:
    promise = forms.of(module)
    if module.form.is_quantized:
        if promise is Promise.PLAIN and not forms.declaration.is_implicitly_plain(module.name):
            yield _finding(module, forms, "plain")
    elif promise is Promise.QUANTIZED:
        yield _finding(module, forms, "quantised")


def _finding(module: StoredModule, forms: DeclaredForms, declared: str) -> Finding:
    payload = module.any_part
    key = skip_key(forms.declaration)
    stored = f"{module.form.format} codes" if module.form.is_quantized else "plain"
    return Finding(
        location=module.place(key=key),
        message=f"{payload.name}, of a prediction layer, is {stored} ({payload.dtype}); {forms.declaration.file}: "
        f"{key} makes {module.name} {declared}",
        measured={"stored": stored, "dtype": payload.dtype},
        bound={"declared": declared},
        fold=f"stored {stored}",
        fix=Fix(id="add-skip-entry" if declared == "quantised" else "remove-skip-entry", safe=declared == "quantised"),
    )
