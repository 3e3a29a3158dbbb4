"""Files that are bytes: a Source without a disk."""

from __future__ import annotations

from collections.abc import Mapping

from degarble.checkpoint.interface import Source


class MemorySource(Source):
    """Stands for a folder."""

    kind = "hf-folder"

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)

    @property
    def path(self) -> str:
        """Nowhere."""
        return "memory"

    def files(self) -> Mapping[str, int]:
        """Sizes."""
        return {name: len(data) for name, data in self._files.items()}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A slice."""
        return self._files[name][start : None if length is None else start + length]
