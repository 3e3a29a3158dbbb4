"""QNT104: bit width, group size, layout or number type of the config against the stored shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.checks.quantization.dispute_findings import findings
from degarble.evidence.disputes import Dispute
from degarble.evidence.modules import Modules
from degarble.evidence.restatements import Restatement
from degarble.evidence.stored_facts import SPLIT_EXPERT
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

SUBJECTS = {
    "num_bits": "the bit width",
    "group_size": "the group size",
    "layout": "the method that packed it",
    "act_order": "the activation order",
    "dtype": "the type of number",
    "shape": "the shape",
}
"""What a contradiction is about, in words. Block grids (QNT105) and zero points (QNT116) have rules of their own."""

CORRECT_CONFIG = Fix(id="correct-quantization-config", safe=True)
WRITE_OVERRIDE = Fix(id="write-module-override", safe=False)


@check("QNT104", symptom_of=("CKP101", "CKP105"))
def bits_or_group_contradict(disputes: Sequence[Dispute]) -> Iterator[Finding]:
    """The quantisation config and the stored shapes name different bit widths, group sizes or packings.

    ## What it looks for
    For every quantised linear the shapes of payload and companions prove a bit width and a group size: 32-bit words a
    row against inputs give the bits, inputs over scales give the group. Both are held against the config, with the
    rule for single modules (`dynamic`, `config_groups`, per-layer entries) applied where there is one. The method that
    the label names (`gptq`, `awq`, …), the kind of number and the dtypes of companions are compared too. If most
    modules contradict, the config is named; if only some do, those tensors are.

    ## Why output turns to garbage
    An engine unpacks with the width and group of the config. With the wrong width every code is cut in the wrong place;
    with the wrong group most codes meet a neighbour's scale. Where the sizes happen to fit, nothing fails at load.
    Fused layers hide it best: the override was written for `q_proj`, the engine asks for `qkv_proj` and takes the
    global value.

    ## What you will see
    An assertion about shapes at load, or fluent-looking nonsense in all positions: group 64 read as 32 raises a
    perplexity of 9 to 26,000.

    ## How to tell it from its look-alikes
    A short last group (576 inputs in groups of 128) is legal. Packed columns alone cannot tell 4 bits in groups of 32
    from 2 bits in groups of 64; the inputs of the architecture decide here. Mixed precision with a rule for every
    deviating module is silent. A grid of blocks is QNT105, the packing of zero points QNT116, a missing scale QNT101.

    ## How to confirm
    Take the named module: inputs divided by the number of scales in a row is the stored group; 32 times the words of
    the packed axis, divided by the codes on it, is the stored width.

    ## How to repair it
    If the config is outvoted: write the stored value under the named key. Safe unattended, since shapes prove it. If
    single modules deviate: write a rule for them (and for the fused name), or quantise them again like the rest; an
    engine may not support mixed widths, so this is not done unattended.

    ## References
    ModelCloud/GPTQModel#1485, vllm-project/vllm#15665, vllm-project/vllm#50214, Blaizzy/mlx-vlm#1079,
    ggml-org/llama.cpp#4927
    """
    for dispute in disputes:
        if dispute.about in SUBJECTS:
            subject = SUBJECTS[dispute.about]
            yield from findings(dispute, subject, CORRECT_CONFIG, WRITE_OVERRIDE)


@check("QNT104", severity=Severity.WARNING, symptom_of=("CKP101", "CKP105"))
def restated_number_contradicts(restatements: Sequence[Restatement], modules: Modules) -> Iterator[Finding]:
    """A sidecar, or a second place of the config, repeats a number that no stored module has.

    A warning: another key governs, but some loaders read this one.
    """
    stored = {"num_bits": set[int](), "group_size": set[int]()}
    for example, _ in modules.classes():
        if example.form.is_quantized and example.form.scheme is not None:
            stored["num_bits"].add(example.form.scheme.num_bits or 0)
            stored["group_size"].add(example.form.scheme.group_size or -1)
    for item in restatements:
        known = sorted(stored[item.about])
        if known and 0 not in known and item.value not in known:
            yield Finding(
                location=Location(file=item.file, key=item.key),
                message=f"{item.file}: {item.key} is {item.value}; {SUBJECTS[item.about]} of what is stored is "
                f"{' or '.join(map(str, known))}, and loaders that read this key take it from here",
                measured={item.about: item.value},
                bound={item.about: list(known)},
                fix=CORRECT_CONFIG,
            )


@check("QNT104", symptom_of=("CKP101", "CKP105"))
def experts_of_mixed_types(modules: Modules, is_gguf: bool) -> Iterator[Finding]:
    """Experts that GGUF stores one by one have one type a layer: kernels read the type of the first for all."""
    first: dict[tuple[str, str], StoredModule] = {}
    for name, module in modules.items() if is_gguf else ():
        split = SPLIT_EXPERT.match(name)
        if split is None or module.payload is None:
            continue
        peer = first.setdefault((split["layer"], split["kind"]), module)
        if peer.any_part.dtype != module.any_part.dtype:
            yield _mixed(module, peer)


def _mixed(module: StoredModule, peer: StoredModule) -> Finding:
    found = module.any_part.dtype.removeprefix("GGUF:")
    expected = peer.any_part.dtype.removeprefix("GGUF:")
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name} is {found}, {peer.any_part.name} of the same layer is {expected}: "
        "experts of a layer are computed with one type",
        measured={"type": found},
        bound={"type": expected},
        fix=Fix(id="requantize-experts", safe=False),
        fold="mixed expert types",
    )
