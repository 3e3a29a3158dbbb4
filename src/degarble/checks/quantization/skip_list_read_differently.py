"""QNT107: the skip list means one thing to one engine and another to the next, and the disk agrees with only some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.architectures.interface import Architecture
from degarble.evidence.fused_groups import FusedGroup
from degarble.evidence.skips import Skips, View, entries_about
from degarble.evidence.store import Settings
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

EXPAND = Fix(id="expand-skip-list", safe=True)

Clash = tuple[StoredModule, tuple[View, ...]]
"""A module, and the readings that take it for what it is not."""


@check("QNT107", severity=Severity.WARNING)
def skip_list_read_differently(
    skips: Skips,
    settings: Settings,
    fused_groups: Sequence[FusedGroup],
    architecture: Architecture | None = None,
) -> Iterator[Finding]:
    """Engines read the skip list differently, and some or all of them contradict what is on disk.

    ## What it looks for
    The list is evaluated under the rule of every engine that is known to load this method (whole names, substrings,
    runs of components, regular expressions, prefixes, suffixes; old and new versions apart). Each linear of the text
    model is then predicted plain or quantised, and compared with how it is stored. The finding counts for each engine
    the modules it would get wrong.

    ## Why output turns to garbage
    One string, four answers: `mlp.gate` is nothing to a reader of whole names, the router to one that cuts at dots, and
    every `gate_proj` to one that searches substrings. `model.layers.1` takes layers 10 to 19 along. A module wrongly
    taken for plain gets its raw codes used as weights, without their scale; a plain one wrongly taken for quantised is
    built with a scale that nobody fills. Neither fails at load.

    ## What you will see
    The same checkpoint is fine in one engine and garbage in another, or breaks with an upgrade: a perplexity in the
    millions, an endless repetition, warnings about unexpected or missing keys that scroll by.

    ## How to tell it from its look-alikes
    Modules that a method never quantises (routers and heads of native FP8) need no entry. A module stored plain that no
    entry has to do with is QNT109; an entry that nothing matches is QNT106; a list that names part of a fused group is
    QNT108; a prediction layer (MTP) is QNT120. With `--engine` only that engine is judged, and a contradiction is an
    error.

    ## How to confirm
    Load with the named engine and look for the module among its unexpected or missing parameters; compare the standard
    deviation of its weight with that of its neighbours.

    ## How to repair it
    Replace every entry by the full names of the modules that are stored plain. All readings agree on full names, and
    the tensors stay as they are: safe unattended.

    ## References
    sgl-project/sglang#23467, huggingface/transformers#47990, unslothai/unsloth#6978, vllm-project/vllm#44628,
    vllm-project/vllm#21669, huggingface/transformers#45674
    """
    views = skips.views_of(settings)
    if not views or not any(view.entries for view in views):
        return
    known = _Disk(skips, architecture, _in_partly_listed_groups(skips, fused_groups))
    clashes = [clash for members in skips.stands_for.values() if (clash := known.clash(members[0], views))]
    everywhere = [clash for clash in clashes if len(clash[1]) == len(views)]
    somewhere = [clash for clash in clashes if len(clash[1]) < len(views)]
    yield from _findings(skips, [clash for clash in everywhere if known.is_about(clash)], views, Severity.ERROR)
    yield from _findings(skips, somewhere, views, Severity.WARNING)


class _Disk:
    """What is stored, against what a reading makes of the list."""

    def __init__(self, skips: Skips, architecture: Architecture | None, excused: frozenset[str]) -> None:
        self._skips = skips
        self._mtp_layers = frozenset(architecture.mtp_layers) if architecture is not None else frozenset()
        self._tied = architecture is not None and architecture.tied
        self._excused = excused

    def clash(self, module: StoredModule, views: Sequence[View]) -> Clash | None:
        """The readings that contradict the disk at this module."""
        if module.name in self._excused or self._has_its_own_rule(module):
            return None
        if module.form.is_quantized:
            wrong = tuple(view for view in views if module.name in view.listed)
        elif self._may_be_plain(module):
            return None
        else:
            wrong = tuple(view for view in views if module.name not in view.listed | view.defaulted)
        return (module, wrong) if wrong else None

    def _has_its_own_rule(self, module: StoredModule) -> bool:
        """Prediction layers are QNT120's; codes in a router QNT110's, in a tied head QNT114's, listed or not."""
        if module.layer in self._mtp_layers or (module.canonical or module.name).startswith("mtp."):
            return True
        return module.form.is_quantized and (module.kind == "router" or (module.kind == "head" and self._tied))

    def _may_be_plain(self, module: StoredModule) -> bool:
        declaration = self._skips.declaration
        return (
            declaration.scheme_for(module.name) is None
            or declaration.is_implicitly_plain(module.canonical or module.name)
            or declaration.is_implicitly_plain(module.name)
            or (module.kind == "head" and self._tied)
        )

    def is_about(self, clash: Clash) -> bool:
        """Whether the list has anything to do with the module; if not, somebody else forgot it."""
        module, views = clash
        return module.form.is_quantized or any(entries_about(view.entries, module.name) for view in views[:1])


def _in_partly_listed_groups(skips: Skips, groups: Sequence[FusedGroup]) -> frozenset[str]:
    """Modules of fused groups of which every engine takes the list to name a part: QNT108's."""
    listed = skips.listed_by_all
    if not listed:
        return frozenset()
    partly = (group for group in groups if 0 < sum(module.name in listed for module in group) < len(group))
    return frozenset(module.name for group in partly for module in group)


def _findings(skips: Skips, clashes: Sequence[Clash], views: Sequence[View], severity: Severity) -> Iterator[Finding]:
    for quantized in (True, False):
        chosen = [clash for clash in clashes if clash[0].form.is_quantized is quantized]
        if not chosen:
            continue
        counts = {view.label: _count(skips, chosen, view) for view in views}
        message = _message(chosen[0], counts, quantized=quantized)
        for module, wrong in chosen:
            for member in skips.stands_for[module.name]:
                yield Finding(
                    location=_place(skips, member, wrong[0]),
                    message=message,
                    severity=severity,
                    measured={f"modules misread by {label}": count for label, count in counts.items()},
                    bound={"modules misread": 0},
                    fix=EXPAND,
                    fold=f"{severity.value} {'codes' if quantized else 'plain'}",
                )


def _count(skips: Skips, clashes: Sequence[Clash], view: View) -> int:
    return sum(len(skips.stands_for[module.name]) for module, wrong in clashes if view in wrong)


def _message(example: Clash, counts: dict[str, int], *, quantized: bool) -> str:
    module, wrong = example
    entry = next((e for view in wrong for e in entries_about(view.entries, module.name)), None)
    because = f" because of {entry!r}" if entry is not None else ""
    stored, taken = ("quantised", "plain") if quantized else ("plain", "quantised")
    table = "; ".join(f"{label}: {count or 'none'}" for label, count in counts.items())
    return f"{module.name} is stored {stored}, {wrong[0].label} takes it for {taken}{because}. Misread modules: {table}"


def _place(skips: Skips, module: StoredModule, view: View) -> Location:
    return module.place(file=skips.declaration.file, key=view.key)
