"""Exact copies of tensors from the reference, module by module."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checkpoint.folder import WEIGHT_SUFFIXES
from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.modules import Modules
from degarble.finding import Location
from degarble.fixes.interface import CannotRepair
from degarble.fixes.job import Job
from degarble.fixes.reference import Reference, is_equal_tensor
from degarble.formats.interface import StoredModule


def restore_tensors(job: Job, reference: Reference, places: list[Location]) -> None:
    """Make the named modules and tensors what they are in the reference, all companions with them.

    A module is copied as a whole, so that codes never meet scales of another run. Tensors that the reference does not
    have are dropped. Raises CannotRepair if the reference is not the same export.
    """
    sick: Modules = job.modules
    names = {place.module for place in places if place.module}
    template = next((sick[name].template for name in names if name in sick), None)
    reference.require_same_export(job.evidence, names, template)
    copier = _Copier(job, reference)
    for name in dict.fromkeys(place.module for place in places if place.module):
        copier.copy_module(name)
    for place in places:
        if place.tensor is not None:
            copier.copy_tensor(place.tensor, place.file)


def restore_layers(job: Job, reference: Reference, layers: set[int]) -> None:
    """Add what the reference stores of whole layers and this checkpoint does not."""
    sick: Modules = job.modules
    lost = [module for module in reference.modules.values() if module.layer in layers and module.name not in sick]
    if not lost:
        return
    reference.require_same_export(job.evidence, {module.name for module in lost})
    copier = _Copier(job, reference)
    for module in lost:
        copier.copy_module(module.name)
    tensors = reference.evidence.find("tensors") or {}
    for name in reference.evidence.find("kv_scales") or ():
        if any(name.startswith(module.name.rpartition(".")[0] + ".") for module in lost):
            copier.copy_tensor(name, tensors[name].file)


def restore_kv_scales(job: Job, reference: Reference) -> None:
    """Store exactly the scales of the KV cache that the reference stores."""
    reference.require_same_export(job.evidence, ())
    copier = _Copier(job, reference)
    for evidence in (job.evidence, reference.evidence):
        for name in evidence.find("kv_scales") or ():
            copier.copy_tensor(name, None)


class _Copier:
    """Puts tensors of the reference where they belong, once each."""

    def __init__(self, job: Job, reference: Reference) -> None:
        self._job = job
        self._reference = reference
        self._mine: dict[str, TensorInfo] = dict(job.evidence.find("tensors") or {})
        self._theirs: dict[str, TensorInfo] = dict(reference.evidence.find("tensors") or {})
        self._done: set[str] = set()
        self._shards = [name for name in job.workspace.files() if name.endswith(WEIGHT_SUFFIXES)]
        if not self._shards:
            raise CannotRepair("no weight file is left to put tensors into")

    def copy_module(self, name: str) -> None:
        """All parts of a module; parts that only this checkpoint has are dropped."""
        mine, theirs = self._job.modules.get(name), self._reference.module(name, self._job.modules)
        if theirs is None:
            for info in mine.parts.values() if mine is not None else ():
                self._drop(info)
            return
        wanted = dict(_renamed(theirs, name))
        for info in mine.parts.values() if mine is not None else ():
            if info.name not in wanted:
                self._drop(info)
        near = mine.any_part.file if mine is not None else None
        for tensor, info in wanted.items():
            self._put(tensor, info, near)

    def copy_tensor(self, name: str, near: str | None) -> None:
        """One tensor by its name, such as a scale of the KV cache, which belongs to no module."""
        if name in self._done:
            return
        if name in self._theirs:
            self._put(name, self._theirs[name], near)
        elif name in self._mine:
            self._drop(self._mine[name])

    def _put(self, name: str, info: TensorInfo, near: str | None) -> None:
        self._done.add(name)
        mine = self._mine.get(name)
        source = self._job.evidence.get("source")
        if mine is None or not is_equal_tensor(source, mine, self._reference.source, info):
            self._job.copy_tensor(name, info, self._reference.source, self._home(mine, info, near))

    def _drop(self, info: TensorInfo) -> None:
        if info.name not in self._done:
            self._done.add(info.name)
            self._job.drop_tensor(info, "not in the reference")

    def _home(self, mine: TensorInfo | None, info: TensorInfo, near: str | None) -> str:
        """The file it is in, the one of that name in the reference, one beside its neighbours, or the first."""
        index = self._job.evidence.find("index")
        listed = index.weight_map.get(info.name) if index is not None else None
        choices = (mine.file if mine is not None else None, listed, info.file, near)
        return next((file for file in choices if file in self._shards), self._shards[0])


def _renamed(theirs: StoredModule, name: str) -> Iterator[tuple[str, TensorInfo]]:
    """The reference's tensors under the name that the module has here."""
    for info in theirs.parts.values():
        yield name + info.name.removeprefix(theirs.name), info
