"""The healthy copy that repairs may take exact copies from, and the proof that it is of the same export.

A tensor of another quantisation run, or of an unquantised source whose norms were folded, has the right name and shape
and is wrong here. So before anything is copied, modules that are not in question are compared byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence

from degarble.checkpoint.interface import Source, TensorInfo
from degarble.checkpoint.rope import CHUNK_BYTES
from degarble.evidence.modules import Modules
from degarble.evidence.store import Evidence
from degarble.fixes.interface import CannotRepair
from degarble.formats.interface import StoredModule

MAX_WITNESSES = 5
MAX_SAMPLES = 32
SAMPLE_BYTES = 1 << 16


class Reference:
    """One healthy copy."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @property
    def source(self) -> Source:
        """Where its bytes are."""
        found: Source = self.evidence.get("source")
        return found

    @property
    def modules(self) -> Modules:
        """Its modules. Raises CannotRepair if it has none."""
        found: Modules | None = self.evidence.find("modules")
        if found is None:
            raise CannotRepair("the reference holds no readable weights")
        return found

    def module(self, name: str, sick: Modules) -> StoredModule | None:
        """Its module for one of the sick checkpoint, by name, or by the architecture's name where roots differ."""
        found = self.modules.get(name)
        if found is None and name in sick:
            found = self.modules.by_canonical.get(sick[name].canonical or name)
        return found

    def require_same_export(self, sick: Evidence, besides: Collection[str], template: str | None = None) -> None:
        """Compare a few modules that are not in question, peers of `template` first. Raises CannotRepair."""
        modules: Modules | None = sick.find("modules")
        pairs = list(self._witnesses(modules, besides, template)) if modules is not None else []
        if not pairs:
            raise CannotRepair("no module is left by which the reference could be recognised as the same export")
        equal = sum(self._is_equal(sick.get("source"), mine, theirs) for mine, theirs in pairs)
        if equal * 2 <= len(pairs):
            raise CannotRepair(
                f"the reference is not the same export: {len(pairs) - equal} of {len(pairs)} modules that are not in "
                f"question differ, such as {pairs[0][0].name}"
            )

    def _witnesses(
        self, modules: Modules, besides: Collection[str], template: str | None
    ) -> Iterator[tuple[StoredModule, StoredModule]]:
        known = [
            (module, theirs)
            for name, module in modules.items()
            if name not in besides and (theirs := self.module(name, modules)) is not None
        ]
        for chosen in (
            [pair for pair in known if pair[0].template == template],
            [pair for pair in known if pair[0].kind == "linear"],
            known,
        ):
            if chosen:
                yield from _spread(chosen, MAX_WITNESSES)
                return

    def _is_equal(self, source: Source, mine: StoredModule, theirs: StoredModule) -> bool:
        """By the payload: codes of two runs differ, and a companion may be what is in question."""
        one, other = mine.payload, theirs.payload
        return one is not None and other is not None and is_equal_tensor(source, one, self.source, other)


def _spread(pairs: Sequence[tuple[StoredModule, StoredModule]], most: int) -> list[tuple[StoredModule, StoredModule]]:
    """At most so many, from the first to the last."""
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[number * (len(pairs) - 1) // (most - 1)] for number in range(most)]


def sha256_of(source: Source, name: str) -> str:
    """Hex digest of a file, read in pieces."""
    digest = hashlib.sha256()
    for low in range(0, source.files()[name], CHUNK_BYTES):
        digest.update(source.read(name, low, CHUNK_BYTES))
    return digest.hexdigest()


def is_equal_tensor(one: Source, mine: TensorInfo, other: Source, theirs: TensorInfo) -> bool:
    """Same type, shape and bytes, read in pieces."""
    if (mine.dtype, mine.shape, mine.nbytes) != (theirs.dtype, theirs.shape, theirs.nbytes):
        return False
    return all(
        one.read(mine.file, mine.start + low, min(CHUNK_BYTES, mine.nbytes - low))
        == other.read(theirs.file, theirs.start + low, min(CHUNK_BYTES, mine.nbytes - low))
        for low in range(0, mine.nbytes, CHUNK_BYTES)
    )


def begins_alike(one: Source, other: Source, name: str, size: int) -> bool:
    """Whether two files agree in their first bytes, read in pieces."""
    return all(
        one.read(name, low, min(CHUNK_BYTES, size - low)) == other.read(name, low, min(CHUNK_BYTES, size - low))
        for low in range(0, size, CHUNK_BYTES)
    )


def is_mostly_alike(one: Source, other: Source, name: str, size: int) -> bool:
    """Whether most of some samples from all over two files of one size are equal."""
    starts = [number * max(size - SAMPLE_BYTES, 0) // (MAX_SAMPLES - 1) for number in range(MAX_SAMPLES)]
    equal = sum(one.read(name, start, SAMPLE_BYTES) == other.read(name, start, SAMPLE_BYTES) for start in starts)
    return equal * 4 > len(starts) * 3
