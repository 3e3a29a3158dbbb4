"""Which kind of dump a path is."""

from __future__ import annotations

from pathlib import Path

from degarble.errors import TargetError
from degarble_engine.dumps import folder, msprobe, sglang
from degarble_engine.dumps.interface import Dump


def open_dump(path: Path) -> Dump:
    """Names of all tensors. Raises TargetError or MalformedFile."""
    if not path.is_dir():
        raise TargetError(f"--dump {path}: expected a folder, found {'a file' if path.exists() else 'nothing'}")
    try:
        if msprobe.recognises(path):
            return msprobe.read(path)
        return sglang.read(path) if sglang.recognises(path) else folder.read(path)
    except OSError as error:
        raise TargetError(f"--dump {path}: {error.strerror or error}") from None
