"""Evidence about skip lists: what each engine makes of this checkpoint's list, module by module.

Engines ask with names of their own. What could be read off their sources is followed here: vLLM and SGLang judge the
experts of a layer as one module, and a name is tried as it stands on disk and as the plain decoder would spell it.
Experts that differ in nothing but their number are judged once, unless an entry speaks of experts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from degarble.engines.pattern_set import UnusableEntry
from degarble.engines.skip_rules import SkipReading, idle_entries, readings, skipped_names, unusable_entries
from degarble.evidence.modules import Modules
from degarble.evidence.store import Settings, provides
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration, SkipList

STACKING_ENGINES = frozenset({"vllm", "sglang"})
"""Engines that build the experts of a layer as one module, and look that one up."""

ASKED_ONE_BY_ONE = frozenset({"compressed-tensors"})
"""Methods under which even those engines look up single experts."""

CANDIDATES = frozenset({"linear", "router", "head"})

TEXT_SIGNS = ("re:", "-:", "+:")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule does with some entries."""

    skipped: frozenset[str]
    unusable: tuple[UnusableEntry, ...]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's reading of the list, applied."""

    reading: SkipReading
    key: str
    """Dotted key of the list it reads, or would read."""
    entries: tuple[str, ...]
    listed: frozenset[str]
    """Names on disk that an entry of the list skips."""
    defaulted: frozenset[str]
    """Names that the engine skips without being told."""
    unusable: tuple[UnusableEntry, ...]

    @property
    def label(self) -> str:
        """Engine with the versions for which it holds."""
        return f"{self.reading.engine} {self.reading.versions}".rstrip()


class Skips(msgspec.Struct, frozen=True, kw_only=True):
    """The lists of a checkpoint, and how engines read them."""

    declaration: Declaration
    lists: tuple[SkipList, ...]
    views: tuple[View, ...]
    names: tuple[str, ...]
    """Modules on disk and their plain spellings, one expert for all where none is named."""
    stands_for: Mapping[str, tuple[StoredModule, ...]]
    """Linear, router or head of the text model -> the modules it was judged for, itself first."""

    @property
    def unusable(self) -> dict[str, str]:
        """Entries that no reading can use, with the reason of one of them."""
        if not self.views:
            return {}
        reasons = [{str(problem.entry): problem.reason for problem in view.unusable} for view in self.views]
        return {entry: reason for entry, reason in reasons[0].items() if all(entry in other for other in reasons)}

    def views_of(self, settings: Settings) -> tuple[View, ...]:
        """The readings of the engine that the user named (in its version), or all of them."""
        chosen = readings(_table_name(self.declaration.method), settings.engine, settings.engine_version)
        return tuple(view for view in self.views if view.reading in chosen)

    @property
    def listed_by_all(self) -> frozenset[str]:
        """Names that every engine that opens the list takes it to skip."""
        listed = [view.listed for view in self.views if view.entries]
        return frozenset.intersection(*listed) if listed else frozenset()

    def idle(self) -> list[tuple[SkipList, str]]:
        """Entries that skip no module under any reading of the method's engines, nor under the loosest of all."""
        bad = self.unusable
        found: list[tuple[SkipList, str]] = []
        for listed in self.lists:
            entries = [entry for entry in dict.fromkeys(listed.entries) if entry not in bad]
            rules = dict.fromkeys(view.reading.rule for view in self.views) or dict.fromkeys(LOOSE_RULES)
            for rule in rules:
                entries = list(_idle(rule, entries, self.names))
            found += [(listed, entry) for entry in entries]
        return found


LOOSE_RULES = ("substring-any-root", "prefix-or-suffix", "substring-or-wildcard", "exact-or-regex")
"""Between them they find everything that an entry could be meant for."""


@provides("skips")
def skips(modules: Modules, declaration: Declaration) -> Skips:
    """Apply every known reading of the declared method to the list in the config."""
    lists = skip_lists(declaration)
    entries = [entry for listed in lists for entry in listed.entries]
    candidates = _representatives(modules, by_number=any("expert" in entry for entry in entries))
    reader = _Reader(declaration, lists, {name: members[0] for name, members in candidates.items()})
    return Skips(
        declaration=declaration,
        lists=lists,
        views=tuple(reader.view(reading) for reading in readings(_table_name(declaration.method))),
        names=_all_names(modules, candidates) if entries else (),
        stands_for=candidates,
    )


def skip_lists(declaration: Declaration) -> tuple[SkipList, ...]:
    """The method's own lists, and the table of regular expressions that GPTQ uses instead."""
    known = {_leaf(listed.key) for listed in declaration.skips}
    table = declaration.raw.get("dynamic")
    if "dynamic" in known or not isinstance(table, dict) or _table_name(declaration.method) != "gptq":
        return declaration.skips
    key = f"{declaration.key}.dynamic" if declaration.key else "dynamic"
    entries = tuple(entry for entry in table if isinstance(entry, str))
    return (*declaration.skips, SkipList(file=declaration.file, key=key, entries=entries))


def entries_about(entries: Iterable[str], name: str) -> list[str]:
    """Entries that some reading or other would take to mean this module, or that name it under another root."""
    related = []
    for entry in entries:
        text = bare_entry(entry)
        if text and (_below_root(text) == _below_root(name) or _might_skip(entry, text, name)):
            related.append(entry)
    return related


class _Reader:
    """Applies readings to the candidates; equal questions are answered once."""

    def __init__(self, declaration: Declaration, lists: Sequence[SkipList], names: Mapping[str, StoredModule]) -> None:
        self._declaration = declaration
        self._lists = lists
        self._names = names
        self._answers: dict[tuple[str, bool, tuple[str, ...]], Verdict] = {}

    def view(self, reading: SkipReading) -> View:
        """One engine's view of the list."""
        chosen = next((listed for key in reading.keys for listed in self._lists if _leaf(listed.key) == key), None)
        entries = chosen.entries if chosen is not None else ()
        defaults = reading.default_entries + (reading.default_when_absent if chosen is None else ())
        fallback = reading.keys[0] if reading.keys else ""
        listed = self._apply(reading, entries)
        return View(
            reading=reading,
            key=chosen.key if chosen is not None else ".".join(filter(None, (self._declaration.key, fallback))),
            entries=entries,
            listed=listed.skipped,
            defaulted=self._apply(reading, defaults).skipped,
            unusable=listed.unusable,
        )

    def _apply(self, reading: SkipReading, entries: tuple[str, ...]) -> Verdict:
        stacks = reading.engine in STACKING_ENGINES and reading.method not in ASKED_ONE_BY_ONE
        question = (reading.rule, stacks, entries)
        if question not in self._answers:
            asked = {name: _asked(module, stacks=stacks) for name, module in self._names.items()} if entries else {}
            every = list(dict.fromkeys(spelling for spellings in asked.values() for spelling in spellings))
            hit = skipped_names(reading.rule, entries, every)
            names = (name for name, spellings in asked.items() if not hit.skipped.isdisjoint(spellings))
            self._answers[question] = Verdict(skipped=frozenset(names), unusable=hit.unusable)
        return self._answers[question]


def _asked(module: StoredModule, *, stacks: bool) -> tuple[str, ...]:
    """The names under which an engine would look the module up."""
    spellings = dict.fromkeys((module.name, module.canonical or module.name))
    return tuple(dict.fromkeys(_stack_of(name) for name in spellings) if stacks else spellings)


def _might_skip(entry: str, text: str, name: str) -> bool:
    """Whether the loosest rules, or a pattern that is not held to the start of the name, reach it."""
    if any(_skips(rule, text, name) for rule in LOOSE_RULES):
        return True
    return entry != text and _skips("prefix-or-suffix", ".*" + text, name)


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _stack_of(name: str) -> str:
    head, found, _ = name.partition(".experts.")
    return f"{head}.experts" if found else name


def _representatives(modules: Modules, *, by_number: bool) -> dict[str, tuple[StoredModule, ...]]:
    """Judged module -> those it stands for. `by_number`: every expert stands for itself."""
    found: dict[str, tuple[StoredModule, ...]] = {}
    for example, members in modules.classes():
        if example.kind not in CANDIDATES or example.canonical is None or example.payload is None:
            continue
        if not example.form.is_quantized and example.form.format != "plain":
            continue
        if by_number or example.expert is None:
            found |= {module.name: (module,) for module in members}
            continue
        layers: dict[int | None, list[StoredModule]] = {}
        for module in members:
            layers.setdefault(module.layer, []).append(module)
        found |= {group[0].name: tuple(group) for group in layers.values()}
    return found


def _all_names(modules: Modules, candidates: Mapping[str, tuple[StoredModule, ...]]) -> tuple[str, ...]:
    """Everything an entry may legally name."""
    names: dict[str, None] = {}
    for name, module in modules.items():
        if module.expert is None or name in candidates or module.kind not in CANDIDATES:
            names[name] = None
            if module.canonical:
                names[module.canonical] = None
            if ".experts." in name:
                names[_stack_of(name)] = None
    return tuple(names)


def _table_name(method: str) -> str:
    """The method under which the table of readings lists this one."""
    for known in ("modelopt", "gptq", "awq"):
        if method.startswith(known):
            return known
    return method


def _idle(rule: str, entries: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    usable = [entry for entry in entries if not unusable_entries(rule, [entry])]
    try:
        return idle_entries(rule, usable, names)
    except UnusableEntry:
        return ()


def _skips(rule: str, entry: str, name: str) -> bool:
    return bool(skipped_names(rule, [entry], [name]).skipped)


def bare_entry(entry: str) -> str:
    """Without the sign that says how to read it."""
    for sign in TEXT_SIGNS:
        entry = entry.removeprefix(sign)
    return entry


def _below_root(name: str) -> str:
    """The part from `layers.` on, where there is one."""
    _, mark, rest = name.partition("layers.")
    return mark + rest if mark else name
