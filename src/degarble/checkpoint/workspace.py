"""An editable view of a checkpoint: what faults plant in and fixes repair in. The original is never touched.

Edits are kept as ropes (see rope.py), so a 100 GB checkpoint costs nothing until it is saved. `source()` gives the
edited checkpoint to a check without touching the disk; `save()` writes it to a new folder, hard-linking weights that did
not change, and renames it into place at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from degarble.checkpoint.folder import WEIGHT_SUFFIXES
from degarble.checkpoint.index import MODEL_INDEX
from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import parse_json
from degarble.checkpoint.rope import RopeSource, Segment, cut, literal
from degarble.checkpoint.shard_edit import GgufEdit, SafetensorsEdit, ShardEdit
from degarble.checkpoint.spill import SpillFile
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.errors import UsageError

LINKED_BYTES = 1 << 20

Ropes = Mapping[str, tuple[Segment, ...]]


class Workspace:
    """One checkpoint with edits. With a `spill` file, new tensors are kept there instead of in memory."""

    def __init__(self, base: Source, spill: SpillFile | None = None) -> None:
        self.base = base
        self._spill = spill
        self._ropes: dict[str, tuple[Segment, ...]] = {
            name: (Segment(size, None, name, 0),) for name, size in base.files().items()
        }
        self._json: dict[str, Any] = {}
        self._shards: dict[str, ShardEdit] = {}

    def files(self) -> list[str]:
        """Names of all files."""
        return sorted(self._ropes)

    def snapshot(self) -> Ropes:
        """The state of all files, for `restore`."""
        self._flush()
        return dict(self._ropes)

    def restore(self, state: Ropes) -> None:
        """Back to a snapshot; edits made since are forgotten."""
        self._json.clear()
        self._shards.clear()
        self._ropes = dict(state)

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._flush()
        del self._ropes[name]

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file."""
        self._flush()
        self._ropes[name] = (literal(data),)

    def write_segments(self, name: str, segments: Sequence[Segment]) -> None:
        """Create or replace a file by bytes that lie elsewhere."""
        self._flush()
        self._ropes[name] = tuple(segments)

    def rename_file(self, old: str, new: str) -> None:
        """Give a file another name."""
        self._flush()
        self._ropes[new] = self._ropes.pop(old)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size` bytes."""
        self._ropes[name] = tuple(cut(self._rope(name), 0, size))

    def append(self, name: str, data: bytes) -> None:
        """Add bytes at the end of a file."""
        self._ropes[name] = (*self._rope(name), literal(data))

    def overwrite(self, name: str, start: int, data: bytes) -> None:
        """Replace bytes in place."""
        source = self.source()
        size = source.files()[name]
        rope = source.ropes[name]
        self._ropes[name] = (*cut(rope, 0, start), literal(data), *cut(rope, start + len(data), size))

    def json(self, name: str) -> Any:
        """The value of a JSON file, to be changed in place; created empty if the file is not there."""
        if name not in self._json:
            raw = self.source().read(name) if name in self._ropes else b"{}"
            self._json[name] = parse_json(raw, name)
        return self._json[name]

    def shard(self, name: str) -> ShardEdit:
        """One weight file, to be edited tensor by tensor."""
        if name not in self._shards:
            edit = GgufEdit if name.endswith(".gguf") else SafetensorsEdit
            self._shards[name] = edit(RopeSource(self.base, self._ropes), name)
        return self._shards[name]

    def holder(self, tensor: str) -> ShardEdit:
        """The shard that holds a tensor."""
        for name in self.files():
            if name.endswith((".safetensors", ".gguf")) and tensor in self.shard(name).tensors:
                return self.shard(name)
        raise UsageError(f"no tensor is called {tensor!r}")

    def drop(self, tensor: str) -> None:
        """Remove a tensor from its shard and from the index."""
        self.holder(tensor).drop(tensor)
        self._index_pop(tensor)

    def rename(self, old: str, new: str) -> None:
        """Rename a tensor in its shard and in the index."""
        shard = self.holder(old)
        shard.rename(old, new)
        place = self._index_pop(old)
        if place is not None:
            self.json(MODEL_INDEX)["weight_map"][new] = place

    def set(self, tensor: str, array: Array) -> None:
        """Replace a tensor's values; dtype and shape may change."""
        self.holder(tensor).put(tensor, dtype_name(array), array.shape, (self.keep(array),))

    def add(self, shard: str, tensor: str, array: Array) -> None:
        """Add a tensor to a shard and to the index."""
        self.put(shard, tensor, dtype_name(array), array.shape, (self.keep(array),))

    def put(self, shard: str, tensor: str, dtype: str, shape: Sequence[int], segments: Sequence[Segment]) -> None:
        """Add or replace a tensor, in the index too, by bytes that may lie elsewhere."""
        self.shard(shard).put(tensor, dtype, shape, segments)
        if MODEL_INDEX in self._ropes:
            self.json(MODEL_INDEX)["weight_map"][tensor] = shard

    def keep(self, array: Array) -> Segment:
        """An array's bytes as a segment, out of memory where there is a spill file."""
        data = np.ascontiguousarray(array).tobytes()
        return literal(data) if self._spill is None else self._spill.keep(data)

    def _index_pop(self, tensor: str) -> str | None:
        if MODEL_INDEX not in self._ropes:
            return None
        place: str | None = self.json(MODEL_INDEX)["weight_map"].pop(tensor, None)
        return place

    def source(self) -> RopeSource:
        """The edited checkpoint, readable at once."""
        self._flush()
        return RopeSource(self.base, self._ropes)

    def save(self, out: str | os.PathLike[str], finish: Callable[[Path], None] | None = None) -> None:
        """Write a new folder; nothing of that name may exist. Atomic: it appears complete or not at all.

        `finish` may add files to the still hidden folder, and refuse it by raising.
        """
        target = Path(out)
        if os.path.lexists(target):
            raise UsageError(f"{target}: already exists; give a new folder")
        source = self.source()
        for name in source.ropes:
            if not stays_inside(target, name):
                raise UsageError(f"{name[:200]!r} leads out of the new folder: not written")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            for name in source.ropes:
                self._save_file(source, name, partial / name)
            if finish is not None:
                finish(partial)
            os.chmod(partial, 0o755)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _save_file(self, source: RopeSource, name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        local_path = getattr(self.base, "local_path", None)
        if local_path is not None and source.is_unchanged(name) and is_linked(name, source.files()[name]):
            try:
                os.link(local_path(name).resolve(), path)
                return
            except OSError:
                pass  # another file system: copy
        with open(path, "wb") as stream:
            for chunk in source.chunks(name):
                stream.write(chunk)

    def _rope(self, name: str) -> tuple[Segment, ...]:
        self._flush()
        return self._ropes[name]

    def _flush(self) -> None:
        """Turn pending edits of JSON files and shards into ropes."""
        for name, value in self._json.items():
            if name not in self._ropes or not self._is_equal(name, value):
                self._ropes[name] = (literal(msgspec.json.format(msgspec.json.encode(value), indent=2)),)
        for name, shard in self._shards.items():
            if shard.changed:
                self._ropes[name] = shard.rope()
        self._json.clear()
        self._shards.clear()

    def _is_equal(self, name: str, value: Any) -> bool:
        """Whether a JSON file was only looked at: then its bytes stay."""
        written = RopeSource(self.base, self._ropes).read(name)
        return msgspec.json.encode(parse_json(written, name)) == msgspec.json.encode(value)


def is_linked(name: str, size: int) -> bool:
    """Whether an unchanged file becomes a hard link. Small ones are copied, so that editing one leaves the other."""
    return name.endswith(WEIGHT_SUFFIXES) or size >= LINKED_BYTES


def stays_inside(folder: Path, name: str) -> bool:
    """Whether a file of that name, which may come from a stranger, would be written below the folder."""
    path = os.path.normpath(folder / name)
    return "\0" not in name and path.startswith(os.path.normpath(folder) + os.sep)


def dtype_name(array: Array) -> str:
    """safetensors spelling of an array's dtype."""
    for name, dtype in DTYPES.items():
        if array.dtype == dtype:
            return name
    raise UsageError(f"no safetensors dtype for {array.dtype}")
