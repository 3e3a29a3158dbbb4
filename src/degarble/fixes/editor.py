"""Editing a view of a checkpoint, key by key and tensor by tensor, with a note of every change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from degarble.checkpoint.dotted import holder_of
from degarble.checkpoint.interface import Source, TensorInfo
from degarble.checkpoint.rope import RopeSource, Segment, literal
from degarble.checkpoint.shard_edit import GgufEdit, Slot
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.checkpoint.workspace import Workspace, dtype_name
from degarble.errors import MalformedFile
from degarble.fixes.interface import CannotRepair, Edit
from degarble.formats.interface import StoredModule

RENAMED = "renamed"
"""What an edit that gives a tensor another name says."""

MAX_SHOWN_CHARS = 300
"""Values whose JSON is longer are recorded by their digest."""


class Editor:
    """A workspace whose edits are noted. What changes nothing is not noted."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.edits: list[Edit] = []

    def json(self, file: str) -> Any:
        """The value of a JSON file, not to be changed. Raises CannotRepair if it cannot be read."""
        if file not in self.workspace.files():
            raise CannotRepair(f"there is no {file}")
        try:
            return self.workspace.json(file)
        except MalformedFile as problem:
            raise CannotRepair(str(problem)) from None

    def set_key(self, file: str, key: str, value: Any, what: str = "set") -> None:
        """Give one dotted key of a JSON file a value; nothing is noted if it has it. Raises CannotRepair."""
        holder, name = self._holder(file, key)
        is_there = isinstance(holder, list) or name in holder
        before = holder[name] if is_there else None
        if is_there and is_same(before, value):
            return
        self._note(file, key=key, what=what, before=shown(before), after=shown(value))
        holder[name] = value

    def drop_key(self, file: str, key: str, what: str = "removed") -> None:
        """Remove one dotted key of a JSON file, if it is there."""
        holder, name = self._holder(file, key)
        if isinstance(holder, list) or name in holder:
            self._note(file, key=key, what=what, before=shown(holder[name]))
            del holder[name]

    def _holder(self, file: str, key: str) -> tuple[Any, Any]:
        try:
            return holder_of(self.json(file), key)
        except KeyError:
            raise CannotRepair(f"{file} has no place for {key}") from None

    def set_metadata(self, file: str, key: str, value: Any, kind: tuple[int, int | None] | None, what: str) -> None:
        """Set one GGUF metadata pair; a new one needs its type."""
        shard = self._gguf(file)
        before = shard.metadata.get(key)
        if key in shard.metadata and is_same(before, value):
            return
        self._note(file, key=key, what=what, before=shown(before), after=shown(value))
        shard.set_metadata(key, value, kind)

    def drop_metadata(self, file: str, key: str, what: str) -> None:
        """Remove one GGUF metadata pair, if it is there."""
        shard = self._gguf(file)
        if key in shard.metadata:
            self._note(file, key=key, what=what, before=shown(shard.metadata[key]))
            shard.drop_metadata(key)

    def _gguf(self, file: str) -> GgufEdit:
        shard = self.workspace.shard(file)
        if not isinstance(shard, GgufEdit):
            raise CannotRepair(f"{file} is no GGUF file")
        return shard

    def replace(self, module: StoredModule, what: str, **parts: Array) -> None:
        """New values for a module, written as its format stores them. Raises CannotRepair."""
        try:
            arrays = module.replace(**parts)
        except (ValueError, KeyError, NotImplementedError) as reason:
            raise CannotRepair(f"{module.name}: {reason}") from None
        stored = {info.name: info for info in module.parts.values()}
        for name, array in arrays.items():
            self.set_tensor(stored[name], array, what)

    def set_part(self, module: StoredModule, role: str, array: Array, what: str) -> None:
        """A new array for one stored part of a module; dtype and shape may change."""
        info = module.part(role)
        if info is None:
            raise CannotRepair(f"{module.name} has no {role}")
        self.set_tensor(info, array, what)

    def set_tensor(self, info: TensorInfo, array: Array, what: str) -> None:
        """New values for a stored tensor. Bytes of a type that numpy does not know keep that type."""
        is_foreign = info.dtype not in DTYPES and array.dtype == np.uint8 and array.nbytes == info.nbytes
        dtype, shape = (info.dtype, info.shape) if is_foreign else (dtype_name(array), array.shape)
        self.put_tensor(info.file, info.name, dtype, shape, (self.workspace.keep(array),), what)

    def put_tensor(
        self, file: str, name: str, dtype: str, shape: Sequence[int], segments: Sequence[Segment], what: str
    ) -> None:
        """Add or replace a tensor; nothing is noted if it is what it was."""
        old, new = self.workspace.shard(file).tensors.get(name), Slot(dtype, tuple(shape), tuple(segments))
        before, after = self._shown_slot(old), self._shown_slot(new)
        if before == after:
            return
        self._note(file, tensor=name, what=what, before=before, after=after)
        self.workspace.put(file, name, dtype, shape, segments)

    def copy_tensor(self, name: str, info: TensorInfo, origin: Source, file: str) -> None:
        """Add or replace a tensor by the exact bytes of another source's."""
        segment = Segment(info.nbytes, None, info.file, info.start, origin)
        self.put_tensor(file, name, info.dtype, info.shape, (segment,), "copied from the reference")

    def add_tensor(self, file: str, name: str, array: Array, what: str) -> None:
        """Add a tensor to a file and to the index."""
        self.put_tensor(file, name, dtype_name(array), array.shape, (self.workspace.keep(array),), what)

    def set_bytes(self, info: TensorInfo, raw: Array, what: str) -> None:
        """New bytes for a tensor of the same type and shape."""
        if raw.nbytes != info.nbytes:
            raise CannotRepair(f"{info.name}: {raw.nbytes} bytes do not fit into {info.nbytes}")
        self.put_tensor(info.file, info.name, info.dtype, info.shape, (self.workspace.keep(raw),), what)

    def drop_from_file(self, info: TensorInfo, what: str) -> None:
        """Remove one of two copies of a tensor; the index keeps the other."""
        shard = self.workspace.shard(info.file)
        self._note(info.file, tensor=info.name, what=what, before=self._shown_slot(shard.tensors[info.name]))
        shard.drop(info.name)

    def drop_tensor(self, info: TensorInfo, what: str) -> None:
        """Remove a tensor from its file and from the index."""
        shard = self.workspace.shard(info.file)
        self._note(info.file, tensor=info.name, what=what, before=self._shown_slot(shard.tensors[info.name]))
        self.workspace.drop(info.name)

    def rename_tensor(self, info: TensorInfo, name: str) -> None:
        """Give a tensor another name; its bytes and place stay."""
        self._note(info.file, tensor=info.name, what=RENAMED, before=info.name, after=name)
        self.workspace.rename(info.name, name)

    def write_file(self, name: str, data: bytes, what: str) -> None:
        """Create or replace a file."""
        self._replace_file(name, (literal(data),), what)

    def write_json(self, name: str, value: Any, what: str) -> None:
        """Create or replace a JSON file, unless it says the same already."""
        if name in self.workspace.files():
            try:
                if is_same(self.workspace.json(name), value):
                    return
            except MalformedFile:
                pass
        self.write_file(name, msgspec.json.format(msgspec.json.encode(value), indent=2), what)

    def copy_file(self, name: str, origin: Source, other_name: str) -> None:
        """Create or replace a file by an exact copy of another source's."""
        whole = Segment(origin.files()[other_name], None, other_name, 0, origin)
        self._replace_file(name, (whole,), "copied from the reference")

    def cut_file(self, name: str, size: int, what: str) -> None:
        """Drop the end of a file."""
        before = self._digest(self.workspace.source().ropes[name])
        self.workspace.truncate(name, size)
        after = self._digest(self.workspace.source().ropes[name])
        self._note(name, what=what, before=before, after=after)

    def delete_file(self, name: str, what: str) -> None:
        """Leave a file out."""
        self._note(name, what=what, before=self._digest(self.workspace.source().ropes[name]))
        self.workspace.delete(name)

    def _replace_file(self, name: str, segments: Sequence[Segment], what: str) -> None:
        ropes = self.workspace.source().ropes
        before = self._digest(ropes[name]) if name in ropes else None
        after = self._digest(segments)
        if before != after:
            self._note(name, what=what, before=before, after=after)
            self.workspace.write_segments(name, segments)

    def _note(
        self,
        file: str,
        *,
        what: str,
        key: str | None = None,
        tensor: str | None = None,
        before: Any = None,
        after: Any = None,
    ) -> None:
        self.edits.append(Edit(file=file, key=key, tensor=tensor, what=what, before=before, after=after))

    def _shown_slot(self, slot: Slot | None) -> str | None:
        """Type, shape and digest of a tensor's bytes: equal for equal tensors only."""
        if slot is None:
            return None
        return f"{slot.dtype} {list(slot.shape)} {self._digest(slot.segments)}"

    def _digest(self, segments: Sequence[Segment]) -> str:
        digest = hashlib.sha256()
        for chunk in RopeSource(self.workspace.base, {"": segments}).chunks(""):
            digest.update(chunk)
        return f"sha256:{digest.hexdigest()}"


def is_same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, and 1 is not 1.0."""
    return _encoded(one) == _encoded(other)


def shown(value: Any) -> Any:
    """A small value as it is, a large one as its digest."""
    text = _encoded(value)
    return value if len(text) <= MAX_SHOWN_CHARS else f"sha256:{hashlib.sha256(text).hexdigest()}"


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=lambda item: item.tolist())
