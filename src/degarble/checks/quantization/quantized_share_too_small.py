"""QNT115: most of the linear weights of a "quantised" checkpoint are plain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from degarble.evidence.declared_form import is_plain_matrix, skip_key
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.methods.interface import Declaration
from degarble.registry import check

MIN_SHARE = 0.5
"""Of linear parameters. Recipes that quantise experts only reach 0.9, those that keep a few layers or all of attention
plain 0.6 to 0.8; a recipe that missed the experts or the MLPs lands below 0.35 (attention of Llama-like models)."""

PLAIN_BYTES = 2
"""bf16."""


@dataclass(slots=True)
class Tally:
    """Parameters of linears, and what they occupy."""

    quantized: int = 0
    plain: int = 0
    stored_bytes: int = 0
    unknown: int = 0
    plain_by_template: dict[str, int] = field(default_factory=dict)


@check("QNT115", severity=Severity.WARNING, confidence=Confidence.LIKELY, symptom_of=("CKP102", "QNT109"))
def quantized_share_too_small(modules: Modules, declaration: Declaration, is_gguf: bool) -> Iterator[Finding]:
    """The config declares a quantised model, and more than half of the parameters in its linear layers are plain.

    ## What it looks for
    Parameters (by logical shape) of all linear weights of the decoder, quantised against plain; head, embedding, router
    and norms do not count. Less than half quantised is reported with the ratio of stored bytes to bf16. Recipes in use
    stay well above: experts only about 0.9, MLP only about 0.7.

    ## Why output turns to garbage
    It does not by itself. But the usual reason is that the quantiser did not recognise the experts or the fused
    projections as linear layers and put them on the skip list: memory and speed are not what was planned, and engines
    that know no plain experts under this method stop or leave them unfilled.

    ## What you will see
    A checkpoint hardly smaller than the original, out-of-memory errors, or a KeyError that names an expert's weight.

    ## How to tell it from its look-alikes
    Weights that are plain although the config declares them quantised are QNT109, the cause of a small share. A recipe
    that quantises attention only on purpose looks the same; ignore the rule then. Models that are tied and small keep
    most bytes in the embedding, which is why embeddings do not count.

    ## How to confirm
    Compare the size of the checkpoint with bits / 16 of the original, and read the skip list for whole classes.

    ## How to repair it
    Quantise again with experts split into single linear layers (or with a tool that knows the family). Nothing in the
    file can be repaired.

    ## References
    vllm-project/llm-compressor#2060, vllm-project/llm-compressor#2939
    """
    tally = _tally(modules)
    total = tally.quantized + tally.plain
    if is_gguf or tally.unknown or not total or tally.quantized >= MIN_SHARE * total:
        return
    largest = max(tally.plain_by_template, key=lambda template: tally.plain_by_template[template])
    share, ratio = tally.quantized / total, tally.stored_bytes / (PLAIN_BYTES * total)
    yield Finding(
        location=Location(file=declaration.file, key=skip_key(declaration)),
        message=f"{share:.1%} of {total:,} linear parameters are quantised; {largest} alone leaves "
        f"{tally.plain_by_template[largest] / total:.1%} plain, and linears take {ratio:.2f} of their bf16 size",
        measured={
            "quantized_share": round(share, 4),
            "size_ratio_to_bf16": round(ratio, 4),
            "linear_parameters": total,
        },
        bound={"quantized_share_min": MIN_SHARE},
        fix=Fix(id="quantize-again", safe=False),
    )


def _tally(modules: Modules) -> Tally:
    tally = Tally()
    for example, members in modules.classes():
        if example.kind != "linear" or example.canonical is None or example.payload is None:
            continue
        count = len(members)
        if example.form.is_quantized and example.form.shape:
            tally.quantized += count * math.prod(example.form.shape)
        elif is_plain_matrix(example):
            size = count * math.prod(example.any_part.shape)
            tally.plain += size
            tally.plain_by_template[example.template] = tally.plain_by_template.get(example.template, 0) + size
        else:
            tally.unknown += count if example.form.format == "unknown" else 0
            continue
        tally.stored_bytes += count * sum(info.nbytes for info in example.parts.values())
    return tally
