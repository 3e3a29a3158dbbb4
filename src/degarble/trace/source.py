"""A trace as a target: its files, and the verdict of its replay, made once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from degarble.checkpoint.interface import Source
from degarble.errors import TargetError, UsageError
from degarble.trace.edges import with_boundaries
from degarble.trace.files import replay_files
from degarble.trace.replay import Verdict


class TraceSource(Source):
    """One trace file, or several of one run."""

    kind: ClassVar[str] = "kv-trace"

    def __init__(self, paths: Sequence[str]) -> None:
        if not paths:
            raise UsageError("no trace file given")
        self.paths = list(paths)

    @property
    def path(self) -> str:
        """What the user typed."""
        return ", ".join(self.paths)

    def files(self) -> Mapping[str, int]:
        """Name -> size in bytes."""
        try:
            return {path: os.stat(path).st_size for path in self.paths}
        except OSError as error:
            raise TargetError(f"{error.filename}: {error.strerror}") from None

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of one of the files."""
        with open(name, "rb") as stream:
            stream.seek(start)
            return stream.read(-1 if length is None else length)

    @cached_property
    def verdict(self) -> Verdict:
        """Replay everything. Raises TargetError if a file cannot be read, or is no trace this version knows."""
        return with_boundaries(replay_files(self.paths), self.paths)
