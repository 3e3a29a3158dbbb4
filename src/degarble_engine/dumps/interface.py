"""A dump: tensors that an engine wrote while it ran, each with the module it belongs to, none of them read yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from degarble.errors import TargetError

INPUT, OUTPUT = "input", "output"
MAX_FILES, MAX_DEPTH = 200_000, 6
_ROLE = re.compile(r"^(?:(?P<module>.+?)\.)?(?P<role>inputs?|outputs?)(?:\.(?P<which>\w+))?$")


class Activation(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a dump."""

    module: str
    """As the engine calls it; empty for what the whole model is given (`input_ids`)."""
    role: str
    which: str = "0"
    """Number or keyword, where a module has several."""
    step: int = 0
    rank: int = 0
    file: Path
    key: str | None = None
    """In a file that holds several."""

    @property
    def place(self) -> str:
        """For a reader: the file and the name in it."""
        return self.file.name if self.key is None else f"{self.file.name}: {self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What was found under one path."""

    kind: str
    path: Path
    activations: tuple[Activation, ...]
    ignored: tuple[str, ...] = field(default=())
    """Files and entries whose names say no module."""

    def of_first_step(self) -> dict[tuple[str, str, str], list[Activation]]:
        """(module, role, which) -> one a rank. Raises TargetError where there is nothing.

        The first step is the one that reads the prompt; later ones decode single tokens.
        """
        if not self.activations:
            names = "".join(f"; for instance {name!r}" for name in self.ignored[:1])
            raise TargetError(f"--dump {self.path}: expected tensors named after modules, found none{names}")
        first = min(one.step for one in self.activations)
        found: dict[tuple[str, str, str], list[Activation]] = {}
        for one in self.activations:
            if one.step == first:
                found.setdefault((one.module, one.role, one.which), []).append(one)
        return {place: _by_rank(members) for place, members in found.items()}


def _by_rank(members: list[Activation]) -> list[Activation]:
    """The first of every rank: a module that is called twice in one step has its first call compared."""
    first: dict[int, Activation] = {}
    for one in members:
        first.setdefault(one.rank, one)
    return [first[rank] for rank in sorted(first)]


def named(name: str) -> tuple[str, str, str] | None:
    """(module, role, which) of `model.layers.0.mlp.output.0` and the like; None if the name says no role."""
    found = _ROLE.match(name)
    if found is None:
        return None
    role = INPUT if found["role"].startswith("in") else OUTPUT
    return found["module"] or "", role, found["which"] or "0"


def files_under(path: Path) -> Iterator[Path]:
    """Regular files, in order; links are passed over. Raises TargetError where there are too many."""
    count = 0
    folders = [(path, 0)]
    while folders:
        folder, depth = folders.pop()
        for entry in sorted(folder.iterdir()):
            count += 1
            if count > MAX_FILES:
                raise TargetError(f"--dump {path}: more than {MAX_FILES:,} files")
            if entry.is_symlink():
                continue
            if entry.is_dir() and depth < MAX_DEPTH:
                folders.append((entry, depth + 1))
            elif entry.is_file():
                yield entry
