"""Fixtures shared by all tests."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parent / "golden.tar.xz"


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder with small healthy checkpoints made by the field's own tools, and their own dequantised values."""
    return unpacked_golden()


@cache
def unpacked_golden() -> Path:
    """Unpack the archive once per machine and content; safe under parallel test workers."""
    digest = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"degarble-golden-{digest}"
    if not target.is_dir():
        partial = Path(tempfile.mkdtemp(prefix="degarble-golden."))
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(partial, filter="data")
        try:
            partial.rename(target)
        except OSError:  # another worker was first
            pass
    return target
