"""How each engine reads a skip list (`ignore`, `modules_to_not_convert`, `exclude_modules`, …).

The same entry `mlp.gate` is nothing to vLLM's FP8 reader (whole names only), the router to SGLang, and the router plus
every `gate_proj` to an old transformers. Where the readings disagree, a module that is stored plain is built quantised
without a scale, or the reverse, and nothing fails at load. The table of readings is data; `compile_rule` applies one.

Names are the modules **on disk**. Engines apply their rule to names of their own, so three differences remain, stated
in a reading's `note` where its source shows them: fused layers (`qkv_proj`: all parts or none, see
`fused_partly_skipped`), stacked experts (judged as one module), and another root (`model.language_model.` against
`language_model.model.` or `model.`), which each engine maps in its own way and sometimes not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec

from degarble.engines.pattern_set import Predicate, UnusableEntry, check_entry
from degarble.engines.skip_matchers import RULES
from degarble.engines.table import BadTable, read_table
from degarble.engines.version_range import check_range, in_range

TABLE = "skip_readings.toml"

FUSED_PARTS: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
"""Layers that vLLM and SGLang build as one: all parts have one form."""


class SkipReading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine's way with the skip list of one quantisation method."""

    engine: str
    method: str
    rule: str
    versions: str = ""
    """Range for which the reading was seen to hold; empty if its source does not tell."""
    source: str
    """File or pull request in which it was read."""
    keys: tuple[str, ...] = ()
    """Configuration keys that hold the list, the first that is present wins."""
    default_entries: tuple[str, ...] = ()
    """Skipped always, whatever the list says; to be read with the same rule."""
    default_when_absent: tuple[str, ...] = ()
    """Skipped only if the checkpoint has no list; a list, even an unrelated one, replaces them."""
    note: str = ""


class _Readings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    date: str
    reading: tuple[SkipReading, ...]


@cache
def _table() -> tuple[SkipReading, ...]:
    rows = read_table(_Readings, TABLE).reading
    for number, row in enumerate(rows):
        if row.rule not in RULES:
            raise BadTable(TABLE, f"reading[{number}].rule", f"one of {sorted(RULES)}", row.rule)
        check_range(row.versions)
    return rows


def readings(method: str, engine: str | None = None, version: str | None = None) -> tuple[SkipReading, ...]:
    """The readings of `method`, of one engine or of all, that may apply to `version` (of that engine)."""
    found = (row for row in _table() if row.method == method and engine in (None, row.engine))
    if engine is None or version is None:
        return tuple(found)
    return tuple(row for row in found if in_range(version, row.versions) is not False)


def compile_rule(rule: str, entries: Sequence[str]) -> Predicate:
    """The predicate "is the module of this name skipped?".

    Raises UnusableEntry for an entry that no engine could use; the predicate raises it for one that backtracks beyond
    its time. `unusable_entries` finds the first kind, `skipped_names` deals with both.
    """
    for entry in entries:
        check_entry(entry)
    return RULES[rule](list(dict.fromkeys(entries)))


def unusable_entries(rule: str, entries: Sequence[object]) -> tuple[UnusableEntry, ...]:
    """What is wrong with entries, before any name is looked at: no string, too long, no regular expression."""
    found = []
    for entry in entries:
        try:
            compile_rule(rule, [entry])  # type: ignore[list-item]
        except UnusableEntry as problem:
            found.append(problem)
    return tuple(found)


class Skips(msgspec.Struct, frozen=True):
    """Outcome of a rule over a checkpoint's modules."""

    skipped: frozenset[str]
    unusable: tuple[UnusableEntry, ...]


def skipped_names(rule: str, entries: Sequence[object], names: Sequence[str]) -> Skips:
    """Apply a rule to all names, leaving out the entries that cannot be used, and saying which."""
    unusable = list(unusable_entries(rule, entries))
    refused = [problem.entry for problem in unusable]
    usable = [entry for entry in entries if isinstance(entry, str) and entry not in refused]
    while True:
        try:
            skipped = compile_rule(rule, usable)
            return Skips(skipped=frozenset(filter(skipped, names)), unusable=tuple(unusable))
        except UnusableEntry as problem:
            unusable.append(problem)
            usable = [entry for entry in usable if entry != problem.entry]


def entry_matches(rule: str, entry: str, names: Iterable[str]) -> bool:
    """Whether one entry skips any of `names`. Raises UnusableEntry."""
    return any(map(compile_rule(rule, [entry]), names))


def idle_entries(rule: str, entries: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Entries that match none of `names`, in their order. Raises UnusableEntry.

    Names that no entry matches are put aside first, so that single entries are tried on few names.
    Under signed-regex a keeping entry matches too: an override that matches nothing is as idle as a skip.
    """
    unique = list(dict.fromkeys(entries))
    asked = (
        [f"-:{entry.removeprefix('-:').removeprefix('+:')}" for entry in unique] if rule == "signed-regex" else unique
    )
    hit = list(filter(compile_rule(rule, asked), names))
    return tuple(entry for entry, ask in zip(unique, asked, strict=True) if not entry_matches(rule, ask, hit))


def fused_groups(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The modules on disk that an engine fuses with each other: same parent, parts of one fused layer."""
    present = frozenset(names)
    groups = []
    for name in sorted(present):
        parent, dot, leaf = name.rpartition(".")
        for parts in FUSED_PARTS.values():
            if leaf == next((part for part in parts if parent + dot + part in present), None):
                groups.append(tuple(parent + dot + part for part in parts if parent + dot + part in present))
    return tuple(group for group in groups if len(group) > 1)


def fused_partly_skipped(
    rule: str, entries: Sequence[str], groups: Iterable[Sequence[str]]
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Groups of which a rule skips some parts but not all: `(group, skipped parts)`.

    vLLM and SGLang refuse such a list at load ("some but not all shards"), or read the parts in one wrong form.
    """
    skipped = compile_rule(rule, entries)
    judged = ((tuple(group), tuple(filter(skipped, group))) for group in groups)
    return tuple((group, parts) for group, parts in judged if 0 < len(parts) < len(group))
