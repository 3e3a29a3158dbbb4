"""Evidence from config and names: which form the config promises for a module, under every engine's reading.

    scheme?  ──no──►  UNNAMED        no rule of the config speaks of this module
      │ yes
    method leaves it alone?  ──yes──►  PLAIN
      │ no
    skipped by  all readings  ►  PLAIN      some  ►  DISPUTED      none  ►  QUANTIZED

Only QUANTIZED and PLAIN are promises that every engine hears in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from degarble.architectures.interface import Architecture
from degarble.engines.pattern_set import Predicate, UnusableEntry
from degarble.engines.skip_rules import compile_rule, unusable_entries
from degarble.evidence.skips import LOOSE_RULES, Skips
from degarble.evidence.store import provides
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration

DECIDED_BY_FILE = ("mlx", "exl")
"""Methods (by the start of their names) whose loaders take each module as the file has it: nothing is promised."""

CLASS_NAMES = frozenset({"Linear"})
"""compressed-tensors skips by class too; every linear of a decoder is a Linear."""


class Promise(StrEnum):
    """What the config says of one module."""

    QUANTIZED = "quantized"
    PLAIN = "plain"
    DISPUTED = "disputed"
    UNNAMED = "unnamed"


class DeclaredForms:
    """Asks the config about modules, and remembers the answers."""

    def __init__(self, skips: Skips) -> None:
        self.declaration = skips.declaration
        self._spared = [view.listed | view.defaulted for view in skips.views]
        self._judged = {member.name: name for name, members in skips.stands_for.items() for member in members[1:]}
        self._lists = [listed.entries for listed in skips.lists]
        self._loose: list[Predicate] | None = None
        self._known: dict[str, Promise] = {}

    def of(self, module: StoredModule) -> Promise:
        """The promise for one module."""
        if module.name not in self._known:
            self._known[module.name] = self._judge(module)
        return self._known[module.name]

    def _judge(self, module: StoredModule) -> Promise:
        if self.declaration.method.startswith(DECIDED_BY_FILE):
            return Promise.DISPUTED
        if self.declaration.scheme_for(module.name) is None:
            return Promise.UNNAMED
        if any(map(self.declaration.is_implicitly_plain, {module.name, module.canonical or module.name})):
            return Promise.PLAIN
        name = self._judged.get(module.name, module.name)
        answers = {name in spared for spared in self._spared}
        if answers == {True}:
            return Promise.PLAIN
        return Promise.DISPUTED if True in answers or self._may_be_meant(module) else Promise.QUANTIZED

    def _may_be_meant(self, module: StoredModule) -> bool:
        """Under a root that only engines and tools write, by class, or in a list whose readers are not known."""
        if any(not CLASS_NAMES.isdisjoint(entries) for entries in self._lists):
            return True
        names = list(_other_roots(module)) if self._spared else [module.name, *_other_roots(module)]
        if not names:
            return False
        if self._loose is None:
            self._loose = [*map(_compiled, LOOSE_RULES, [self._usable(rule) for rule in LOOSE_RULES])]
        return any(_skips(rule, name) for rule in self._loose for name in names)

    def _usable(self, rule: str) -> list[str]:
        entries = [entry for entries in self._lists for entry in entries]
        refused = {problem.entry for problem in unusable_entries(rule, entries)}
        return [entry for entry in entries if entry not in refused]


@provides("declared_forms")
def declared_forms(skips: Skips) -> DeclaredForms:
    """The promises of the config."""
    return DeclaredForms(skips)


def is_mtp(module: StoredModule, architecture: Architecture | None) -> bool:
    """Whether the module belongs to multi-token prediction: numbered behind the decoder, or under a root of its own."""
    if (module.canonical or module.name).startswith("mtp."):
        return True
    return architecture is not None and module.layer is not None and module.layer in architecture.mtp_layers


def is_plain_matrix(module: StoredModule) -> bool:
    """A plain matrix, or a plain stack of experts; small convolutions and vectors are never quantised."""
    payload = module.payload
    if module.form.format != "plain" or payload is None:
        return False
    return len(payload.shape) == 2 or (len(payload.shape) == 3 and "experts" in module.name.split("."))


def skip_key(declaration: Declaration) -> str:
    """The dotted key of the list where an entry belongs; of the whole config if it has none."""
    return declaration.skips[0].key if declaration.skips else declaration.key


def _other_roots(module: StoredModule) -> Iterator[str]:
    """Names of a module below a wrapper that differ from the one on disk in their root only."""
    if module.canonical is not None and module.canonical != module.name:
        yield f"language_model.{module.canonical}"
        yield f"model.language_model.{module.canonical.removeprefix('model.')}"


def _compiled(rule: str, entries: list[str]) -> Predicate:
    """A pattern that cannot be built with others is taken to match: no promise can rest on it."""
    try:
        return compile_rule(rule, entries)
    except UnusableEntry:
        return lambda name: True


def _skips(rule: Predicate, name: str) -> bool:
    """A pattern that takes too long is taken to match as well."""
    try:
        return rule(name)
    except UnusableEntry:
        return True
