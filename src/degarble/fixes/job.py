"""What a repair works with: the finding, the evidence of the sick state, the reference, and noted editing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from degarble.checkpoint.dotted import value_at
from degarble.checkpoint.workspace import Workspace
from degarble.errors import EvidenceMissing
from degarble.evidence.declaration import quantization_objects
from degarble.evidence.modules import Modules
from degarble.evidence.store import Evidence
from degarble.finding import Finding, Location
from degarble.fixes.editor import Editor
from degarble.fixes.interface import CannotRepair
from degarble.fixes.origin import advice
from degarble.fixes.reference import Reference
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.registry import rules


class Job(Editor):
    """One finding to be repaired."""

    def __init__(self, finding: Finding, evidence: Evidence, workspace: Workspace, reference: Reference | None) -> None:
        super().__init__(workspace)
        self.finding = finding
        self.evidence = evidence
        """Of the state before this repair; never of what it changed."""
        self.reference = reference
        self.judgement: str | None = None
        """Why this step is not safe; None: it is."""

    def judge(self, reason: str) -> None:
        """Say that what follows is a judgement, and which."""
        self.judgement = self.judgement or reason

    def cannot(self, reason: str, tensors: Iterable[str] = (), files: Iterable[str] = ()) -> CannotRepair:
        """The exception to raise, with what would have to be fetched and from where."""
        return CannotRepair(reason, advice(self.evidence, tensors, files))

    @property
    def places(self) -> tuple[Location, ...]:
        """Every place of the finding."""
        return self.finding.all_places

    def need(self, name: str) -> Any:
        """One evidence. Raises CannotRepair where it is absent."""
        found = self.evidence.find(name)
        if found is None:
            raise CannotRepair(f"the checkpoint gives no {name.replace('_', ' ')}")
        return found

    @property
    def modules(self) -> Modules:
        """All stored modules."""
        found: Modules = self.need("modules")
        return found

    @property
    def declaration(self) -> Declaration:
        """The quantisation config."""
        found: Declaration = self.need("declaration")
        return found

    def value(self, file: str, key: str) -> Any:
        """What a dotted key of a JSON file holds; None where it is absent."""
        return value_at(self.json(file), key)

    def quantization_keys(self) -> Iterator[tuple[str, str]]:
        """(file, dotted key) of the places' keys, and of keys of that name in files that repeat the config."""
        for place in self.places:
            if place.key is None:
                continue
            file = place.file if place.file and place.file.endswith(".json") else self.declaration.file
            yield file, place.key
            leaf = place.key.rpartition(".")[2]
            for other, key, raw, _ in quantization_objects(self.need("json_files")):
                if other != file and leaf in raw:
                    yield other, f"{key}.{leaf}".lstrip(".")

    def singles(self) -> list[Finding]:
        """The rule's findings one by one, as they were before they were folded, each with its own numbers."""
        found: list[Finding] = []
        for check in rules()[self.finding.rule].checks:
            try:
                inputs = self.evidence.gather(check.needs)
            except EvidenceMissing:
                continue
            found += check.function(*inputs)
        places = set(self.places)
        return [one for one in found if not places.isdisjoint(one.all_places)]

    def modules_at_places(self) -> list[StoredModule]:
        """The stored modules that the finding names, each once. Raises CannotRepair if there is none."""
        names = dict.fromkeys(place.module for place in self.places if place.module)
        found = [self.modules[name] for name in names if name in self.modules]
        if not found:
            raise CannotRepair("the finding names no stored module")
        return found
