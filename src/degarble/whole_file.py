"""A file that appears complete or not at all, whatever interrupts the writing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(target: Path, data: bytes, *, replaces: bool = True) -> None:
    """Write beside the target, then give it the name. Raises OSError; without `replaces` also where the name is taken."""
    partial = ""
    try:
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(partial, 0o644)
        if replaces:
            os.replace(partial, target)
            partial = ""
        else:
            os.link(partial, target)
    finally:
        if partial:
            Path(partial).unlink(missing_ok=True)
