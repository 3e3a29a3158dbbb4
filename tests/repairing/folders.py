"""Sick folders on disk, and what is compared of them."""

from __future__ import annotations

from pathlib import Path

from degarble.injection import inject
from tests.conftest import unpacked_golden


def rewrite(path: Path, text: str) -> None:
    """A new file in place of one that may be a link to the golden checkpoint."""
    path.unlink()
    path.write_text(text)


def sick_copy(fault: str, golden: str, out: Path) -> Path:
    """A golden checkpoint with one planted fault."""
    inject(fault, unpacked_golden() / golden, out)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its relative name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
