"""QNT106: an entry of the skip list that no module answers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from degarble.architectures.canonical import Prefix, is_other_tower, template_of
from degarble.architectures.interface import Architecture
from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.modules import Modules
from degarble.evidence.skips import Skips, bare_entry
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.methods.interface import SkipList
from degarble.registry import check

HEADS = frozenset({"lm_head", "output", "head", "embed_out", "score"})
"""Heads are listed as a matter of course; tied ones are not on disk."""

MTP_SIGNS = ("mtp", "nextn", "eh_proj", "shared_head", "enorm", "hnorm")

ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
"""Tools list them for every model of a family, the dense ones included."""

MAX_COMPARED = 20_000
"""Names among which a misspelt entry is looked for."""


@check("QNT106", severity=Severity.WARNING, symptom_of=("QNT107", "CKP102"))
def skip_entry_matches_nothing(
    skips: Skips,
    modules: Modules,
    tensors: Mapping[str, TensorInfo],
    architecture: Architecture | None = None,
    prefix: Prefix | None = None,
) -> Iterator[Finding]:
    """An entry of the skip list matches no module, so nothing is skipped on its account.

    ## What it looks for
    Every entry of `ignore`, `modules_to_not_convert`, `exclude_modules`, `llm_int8_skip_modules` or `dynamic` is tried
    on every module of the checkpoint, under each rule that an engine is known to read this method's list with. An entry
    that no reading matches is named, with the module it was probably meant for. An entry that no engine can use at all
    (no string, an invalid regular expression, one that takes seconds to match) is named too.

    ## Why output turns to garbage
    A module that was left in 16 bits because of the list is then built as a quantised one: its plain bytes are read as
    codes, and its scale is whatever lay in memory. Typical reasons are a misspelt name and the suffix of a wrapper
    (`.linear`) that exists only in the quantiser.

    ## What you will see
    An error about sizes and tiles at load, missing parameters, or garbage from the layer on. If the module was
    quantised anyway, nothing at all.

    ## How to tell it from its look-alikes
    These are silent: `lm_head` of a tied model, embeddings, norms and towers, names of the MTP layer or of parameters
    that the architecture knows but this file lacks, and class names such as `Linear`. Routers listed for a dense model
    are an info. An entry that some engines match and others do not is QNT107.

    ## How to confirm
    Search the index for the entry; compare it with the name of the module it resembles.

    ## How to repair it
    Write the full name of the module that was meant, or drop the entry. Which of the two is a guess, so this is not
    done unattended.

    ## References
    sgl-project/sglang#35792, sgl-project/sglang#28018
    """
    judge = _Legal(modules, tensors, architecture, prefix)
    for listed, entry in skips.idle():
        if not judge.is_legal(entry):
            yield _idle(listed, entry, judge.nearest(entry, skips), is_router=judge.is_dense_router(entry))
    for listed in skips.lists:
        for entry in listed.entries:
            if entry in skips.unusable:
                yield _unusable(listed, entry, skips.unusable[entry])


class _Legal:
    """Names that may stand in a list although no module answers."""

    def __init__(
        self,
        modules: Modules,
        tensors: Mapping[str, TensorInfo],
        architecture: Architecture | None,
        prefix: Prefix | None,
    ) -> None:
        self._modules = modules
        self._tensors = tensors
        self._architecture = architecture
        self._prefix = prefix
        self._templates = {t.name for t in architecture.templates} if architecture is not None else set[str]()

    def is_legal(self, entry: str) -> bool:
        text = _literal(entry)
        last = text.rpartition(".")[2]
        return (
            not text
            or text in HEADS
            or (last in HEADS and text.removesuffix(last).rstrip(".") in ("", "model", "language_model"))
            or is_other_tower(text)
            or any(is_other_tower(part) for part in text.split("."))
            or any(sign in text for sign in MTP_SIGNS)
            or (text.isidentifier() and text[0].isupper())
            or any(text in name for name in self._parameters)
            or self._is_in_templates(text)
        )

    @property
    def _parameters(self) -> list[str]:
        """Bare parameters and their like: a list may name them, though they are no modules with a weight."""
        return [name for name, module in self._modules.items() if module.kind in ("other", "bias", "norm", "embedding")]

    def _is_in_templates(self, text: str) -> bool:
        """A name the architecture knows and this checkpoint lacks, an MTP layer's number included."""
        template, layer, _ = template_of(text)
        if self._architecture is not None and layer is not None and layer in self._architecture.mtp_layers:
            return True
        names = {template, "model." + template, *(self._canonical(template))}
        return any(name + ending in self._templates for name in names for ending in ("", ".weight"))

    def _canonical(self, template: str) -> Iterator[str]:
        if self._prefix is not None and self._prefix.model and template.startswith(self._prefix.model):
            yield "model." + template.removeprefix(self._prefix.model)

    def is_dense_router(self, entry: str) -> bool:
        """A router's name in the list of a model without experts."""
        is_moe = any(example.expert is not None or example.kind == "router" for example, _ in self._modules.classes())
        return not is_moe and _literal(entry).rpartition(".")[2] in ROUTERS

    def nearest(self, entry: str, skips: Skips) -> StoredModule | None:
        """The module that the entry was probably meant for; plain ones first, since they lose by it."""
        text = _literal(entry)
        names = list(skips.stands_for)[:MAX_COMPARED]
        plain = [name for name in names if not skips.stands_for[name][0].form.is_quantized]
        for pool in (plain, names):
            inside = [name for name in pool if text.startswith(name + ".") or (text and name.endswith("." + text))]
            close = inside or get_close_matches(text, pool, n=1, cutoff=0.9)
            if close:
                return skips.stands_for[close[0]][0]
        return None


def _literal(entry: str) -> str:
    """The entry without the signs of patterns: what is left is a name, or part of one."""
    text = bare_entry(entry).replace(r"\.", ".")
    for sign in (".*", "*", "^", "$", "(", ")", "?"):
        text = text.replace(sign, "")
    return text.strip(".")


def _idle(listed: SkipList, entry: str, near: StoredModule | None, *, is_router: bool) -> Finding:
    meant = f"; was {near.name} meant?" if near is not None else ""
    return Finding(
        location=Location(
            file=listed.file,
            key=listed.key,
            module=near.name if near is not None else None,
            layer=near.layer if near is not None else None,
        ),
        message=f"{listed.file}: {listed.key}: {entry!r} matches no module{meant}",
        severity=Severity.INFO if is_router else None,
        measured={"entry": entry, "modules_matched": 0},
        bound={"modules_matched_at_least": 1},
        fix=Fix(id="correct-skip-entry", safe=False),
        fold=f"idle {listed.key}" if near is None else f"idle {listed.key} {near.template}",
    )


def _unusable(listed: SkipList, entry: str, reason: str) -> Finding:
    return Finding(
        location=Location(file=listed.file, key=listed.key),
        message=f"{listed.file}: {listed.key}: no engine can use {entry[:120]!r}: {reason}",
        measured={"entry": entry[:400]},
        fix=Fix(id="correct-skip-entry", safe=False),
        fold=f"unusable {listed.key}",
    )
