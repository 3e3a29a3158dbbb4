"""Local places: a checkpoint folder (also a snapshot of the hub's cache), or one file.

Links: inside the folder, and inside the same hub cache (`models--org--name/{snapshots,blobs}`), they are followed. A
link that leads elsewhere is refused and said so, since a checkpoint is data from a stranger.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from degarble.checkpoint.interface import Source
from degarble.errors import TargetError

MAX_FILES = 20_000
"""A folder with more entries than this is not a checkpoint; listing stops there."""

MAX_NOTE_BYTES = 4096
"""A note of a download has three short lines."""

SKIPPED_FOLDERS = frozenset({".git", ".cache", "__pycache__", "original", "onnx", "openvino"})
"""Sub-folders that hold other forms of the model, or none."""


WEIGHT_SUFFIXES = (".safetensors", ".gguf")


class LocalFolder(Source):
    """A folder in Hugging Face layout: weights and small files side by side, with one level of sub-folders."""

    kind = "hf-folder"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._typed = os.fspath(path)
        try:
            self.root = Path(self._typed).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise TargetError(f"{self._typed}: {_reason(error)}") from None
        if not self.root.is_dir():
            raise TargetError(f"{self._typed}: not a folder")
        self._allowed = self._allowed_roots()

    @property
    def path(self) -> str:
        """What the user typed."""
        return self._typed

    def _allowed_roots(self) -> tuple[Path, ...]:
        cache = self.root.parent.parent  # models--org--name/snapshots/<revision>
        if self.root.parent.name == "snapshots" and (cache / "blobs").is_dir():
            return (self.root, cache / "blobs")
        return (self.root,)

    def files(self) -> Mapping[str, int]:
        """Regular files, followed through permitted links."""
        return self._listing[0]

    def refused(self) -> Mapping[str, str]:
        """Entries that exist and are not read."""
        return self._listing[1]

    @cached_property
    def _listing(self) -> tuple[dict[str, int], dict[str, str]]:
        sizes: dict[str, int] = {}
        refused: dict[str, str] = {}
        try:
            self._scan(self.root, "", sizes, refused)
        except OSError as error:
            raise TargetError(f"{self._typed}: {_reason(error)}") from None
        return sizes, refused

    def _scan(self, folder: Path, prefix: str, sizes: dict[str, int], refused: dict[str, str]) -> None:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if len(sizes) >= MAX_FILES:
                    refused[prefix or "."] = f"more than {MAX_FILES} files: the rest was not listed"
                    return
                self._add(entry, prefix, sizes, refused)

    def _add(self, entry: os.DirEntry[str], prefix: str, sizes: dict[str, int], refused: dict[str, str]) -> None:
        name = prefix + entry.name
        try:
            name.encode()
            status = entry.stat()
        except (OSError, UnicodeEncodeError) as error:
            refused[name.encode(errors="replace").decode()] = _reason(error)
            return
        if entry.is_symlink() and not self._inside(Path(entry.path)):
            refused[name] = "a link that leads out of the folder: give the real folder as the target"
        elif stat.S_ISDIR(status.st_mode):
            if entry.name.endswith(WEIGHT_SUFFIXES):
                refused[name] = "a folder under the name of a weight file"
            elif not prefix and not entry.is_symlink() and entry.name not in SKIPPED_FOLDERS:
                self._scan_below(Path(entry.path), entry.name + "/", sizes, refused)
        elif stat.S_ISREG(status.st_mode):
            sizes[name] = status.st_size
        else:
            refused[name] = "not a regular file"

    def _scan_below(self, folder: Path, prefix: str, sizes: dict[str, int], refused: dict[str, str]) -> None:
        try:
            self._scan(folder, prefix, sizes, refused)
        except OSError as error:
            refused[prefix] = _reason(error)

    def _inside(self, path: Path) -> bool:
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return False
        return any(real.is_relative_to(root) for root in self._allowed)

    def local_path(self, name: str) -> Path:
        """Where a listed file is; raises TargetError for any name that `files()` does not hold."""
        if name not in self.files():
            raise TargetError(f"{name}: not a file of {self._typed}")
        return self.root / name

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See Source."""
        return read_range(self.local_path(name), start, length)

    def digests(self) -> Mapping[str, str]:
        """From the hub's own records: a cache names a large file's blob by its sha256, a download notes it aside."""
        found: dict[str, str] = {}
        for name in self.files():
            path = self.root / name
            if path.is_symlink() and is_sha256(blob := path.resolve().name):
                found[name] = blob
            elif name.endswith(WEIGHT_SUFFIXES) and (noted := self._noted_digest(name)) is not None:
                found[name] = noted
        return found

    def _noted_digest(self, name: str) -> str | None:
        """`hf download --local-dir` notes commit, etag and time; the etag of a large file is its sha256."""
        path = self.root / ".cache" / "huggingface" / "download" / f"{name}.metadata"
        try:
            if not stat.S_ISREG(path.lstat().st_mode) or not self._inside(path):
                return None
            lines = read_range(path, 0, MAX_NOTE_BYTES).decode().splitlines()
        except (OSError, UnicodeDecodeError, TargetError):
            return None
        return lines[1] if len(lines) > 1 and is_sha256(lines[1]) else None


class LocalFile(Source):
    """One `.safetensors` or `.gguf` file, alone, or all parts of one split GGUF file."""

    def __init__(self, path: str | os.PathLike[str], kind: str, parts: Sequence[Path] = ()) -> None:
        self._typed = os.fspath(path)
        self.kind = kind  # type: ignore[misc]  # a class constant elsewhere, told by the suffix here
        self._paths = {part.name: part for part in parts or (Path(self._typed),)}
        self._files = {name: self._size(part) for name, part in self._paths.items()}

    def _size(self, part: Path) -> int:
        try:
            status = part.stat()
        except (OSError, ValueError) as error:
            raise TargetError(f"{self._typed}: {_reason(error)}") from None
        if not stat.S_ISREG(status.st_mode):
            raise TargetError(f"{self._typed}: not a regular file")
        return status.st_size

    @property
    def path(self) -> str:
        """What the user typed."""
        return self._typed

    def files(self) -> Mapping[str, int]:
        """The one file, or the parts."""
        return self._files

    def local_path(self, name: str) -> Path:
        """Where a file is."""
        if name not in self._paths:
            raise TargetError(f"{name}: not part of {self._typed}")
        return self._paths[name]

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See Source."""
        return read_range(self.local_path(name), start, length)


def read_range(path: Path, start: int, length: int | None) -> bytes:
    """Bytes [start, start + length) of a file that is listed already."""
    try:
        with open(path, "rb") as stream:
            stream.seek(start)
            return stream.read() if length is None else stream.read(length)
    except (OSError, OverflowError, ValueError) as error:
        raise TargetError(f"{path.name}: {_reason(error)}") from None


def is_sha256(text: str) -> bool:
    """64 lower-case hexadecimal digits."""
    return len(text) == 64 and all(digit in "0123456789abcdef" for digit in text)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
