"""QNT111: experts of one layer that do not carry the same companions, or are not of one form."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from degarble.evidence.input_scales import INPUT_SCALE
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

CALIBRATED = frozenset({INPUT_SCALE, "pre_quant_scale", "output_scale"})
"""Roles that only a module which saw calibration data has: whoever lacks one is odd, however many there are."""

IGNORED = frozenset({"bias"})
EXPLAINED_BY = (
    "CKP101", "CKP102", "CKP103", "CKP105", "CFG104", "CFG110", "QNT101", "QNT102", "QNT104", "QNT109", "QNT120",
)  # fmt: skip


class Peer(msgspec.Struct, frozen=True):
    """What one class of experts carries."""

    form: str
    roles: frozenset[str]


@check("QNT111", symptom_of=EXPLAINED_BY)
def experts_unevenly_covered(modules: Modules) -> Iterator[Finding]:
    """Experts of one layer differ in the companions they carry, or in the form of their weights.

    ## What it looks for
    For every layer and projection, the set of companions each routed expert has (scales of weights and activations,
    smoothing scales, zero points, group indices) and the format of its weight. All experts of a layer must agree; the
    ones that do not are listed.

    ## Why output turns to garbage
    Engines stack the experts of a layer into one tensor with one kind of scale. An expert that no calibration token
    reached has no activation scale: its slot stays zero or uninitialised, one over zero is infinite, and every token
    that is routed there becomes NaN. An expert in another form is read in the form of its neighbours.

    ## What you will see
    Answers that depend on the subject: simple prompts work, code or mathematics returns padding, empty text or one
    repeated token. Exporters sometimes refuse with "modules have different quantization formats".

    ## How to tell it from its look-alikes
    An expert without its weight scale is QNT101, an expert stored plain against the config is QNT109, an expert that is
    not there at all is CFG104: each of them explains the unevenness. Layers may differ from each other. Experts kept in
    one stacked tensor cannot be uneven.

    ## How to confirm
    Route tokens to the listed experts (prompts on rare subjects) and watch for NaN in the layer's output.

    ## How to repair it
    Calibrate again with all experts reached, or with more and broader data. Taking the neighbours' largest activation
    scale is a usable stopgap, but a guess, so not safe unattended.

    ## References
    vllm-project/vllm#45212, vllm-project/vllm#45320, NVIDIA/Model-Optimizer#1142, vllm-project/llm-compressor#2826,
    ggml-org/llama.cpp#4927
    """
    for peers in _uneven_groups(modules).values():
        everyone = [module for members in peers.values() for module in members]
        yield from _by_form(peers, everyone)
        for role in sorted(frozenset().union(*(peer.roles for peer in peers)) - IGNORED):
            yield from _by_role(role, everyone)


def _uneven_groups(modules: Modules) -> dict[tuple[str, int | None], dict[Peer, list[StoredModule]]]:
    """(template, layer) -> experts by what they carry, where they differ. Templates of one class cannot differ."""
    by_template: dict[str, list[list[StoredModule]]] = {}
    for example, members in modules.classes():
        if example.expert is not None and example.payload is not None and "." in example.template:
            by_template.setdefault(example.template, []).append(members)
    groups: dict[tuple[str, int | None], dict[Peer, list[StoredModule]]] = {}
    for template, classes in by_template.items():
        if len(classes) < 2:
            continue
        for members in classes:
            peer = _peer(members[0])
            for module in members:
                groups.setdefault((template, module.layer), {}).setdefault(peer, []).append(module)
    return {key: peers for key, peers in groups.items() if len(peers) > 1}


def _peer(module: StoredModule) -> Peer:
    """GGUF types are formats of their own; elsewhere experts may differ in bits, but not in layout."""
    dtype = module.any_part.dtype
    form = dtype if dtype.startswith("GGUF:") else module.form.format
    return Peer(form=form, roles=frozenset(module.form.roles))


def _by_form(peers: dict[Peer, list[StoredModule]], everyone: list[StoredModule]) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    for peer, members in peers.items():
        counts[peer.form] = counts.get(peer.form, 0) + len(members)
    if len(counts) < 2:
        return
    usual = max(counts, key=lambda form: counts[form])
    odd = sorted((m for peer, ms in peers.items() if peer.form != usual for m in ms), key=_number)
    for module in odd:
        is_plain = module.form.format == "plain"
        yield _finding(
            module,
            f"{module.any_part.name} is stored {'plain' if is_plain else 'as ' + _peer(module).form}, while "
            f"{counts[usual]} of {len(everyone)} experts of the layer are {usual}",
            odd,
            f"form {_peer(module).form} {usual}",
            "one-form-for-all-experts",
        )


def _by_role(role: str, everyone: list[StoredModule]) -> Iterator[Finding]:
    if len({_peer(module).form for module in everyone if role in module.form.roles}) > 1:
        return
    quantized = [module for module in everyone if module.form.is_quantized]
    having = [module for module in quantized if role in module.form.roles]
    lacking = [module for module in quantized if role not in module.form.roles]
    if not having or not lacking:
        return
    is_extra = role not in CALIBRATED and len(having) < len(lacking)
    odd = sorted(having if is_extra else lacking, key=_number)
    experts = ", ".join(str(module.expert) for module in odd[:12]) + (" …" if len(odd) > 12 else "")
    verb = "alone have" if is_extra else "lack"
    for module in odd:
        yield _finding(
            module,
            f"{module.template.replace('{layer}', str(module.layer))}: experts {experts} {verb} the {role} that "
            f"{len(lacking) if is_extra else len(having)} of {len(quantized)} {'do not have' if is_extra else 'have'}",
            odd,
            f"{verb} {role} {module.form.format}",
            "calibrate-experts",
        )


def _finding(module: StoredModule, message: str, odd: list[StoredModule], fold: str, fix: str) -> Finding:
    return Finding(
        location=module.place(),
        message=message,
        severity=Severity.WARNING if "bias" in fold.split() else None,
        measured={"odd_experts": len(odd), "experts": [m.expert for m in odd[:64]], "layer": module.layer},
        bound={"odd_experts": 0},
        fold=fold,
        fix=Fix(id=fix, safe=False),
    )


def _number(module: StoredModule) -> int:
    return module.expert if module.expert is not None else -1
