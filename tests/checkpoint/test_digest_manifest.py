"""Lists of digests as the usual tools write them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from degarble.checkpoint.digest_manifest import is_manifest, read_manifest

A, B = "0123456789abcdef" * 4, "FEDCBA9876543210" * 4


def test_names() -> None:
    """Lists by their usual names, in the folder itself."""
    for name in (
        "SHA256SUMS",
        "sha256sum.txt",
        "checksums.txt",
        "checksum.sha256",
        "model.safetensors.sha256",
        "sha256sums",
    ):
        assert is_manifest(name), name
    for name in ("config.json", "SHA256SUMS.asc", "sub/SHA256SUMS", "model.safetensors", "sha256.py"):
        assert not is_manifest(name), name


@pytest.mark.parametrize(
    ("line", "name", "found"),
    [
        (f"{A}  m.safetensors", "SHA256SUMS", {"m.safetensors": A}),
        (f"{B} *m.safetensors", "SHA256SUMS", {"m.safetensors": B.lower()}),
        (f"{A}  ./a b.gguf\r", "SHA256SUMS", {"a b.gguf": A}),
        (f"SHA256 (m.gguf) = {A}", "SHA256SUMS", {"m.gguf": A}),
        (f"SHA2-256(m.gguf)= {A}", "SHA256SUMS", {"m.gguf": A}),
        (A, "m.gguf.sha256", {"m.gguf": A}),
        (A, "SHA256SUMS", {}),
        (f"{A}  ../m.gguf", "SHA256SUMS", {}),
        (f"{A}  /etc/passwd", "SHA256SUMS", {}),
        (f"{A[:-1]}  m.gguf", "SHA256SUMS", {}),
        (f"# {A}  m.gguf", "SHA256SUMS", {}),
        ("\ufffd\0", "SHA256SUMS", {}),
    ],
)
def test_lines(line: str, name: str, found: dict[str, str]) -> None:
    """One line of each form."""
    assert read_manifest(line.encode(), name) == found


def test_the_tool_itself(tmp_path: Path) -> None:
    """What `sha256sum` prints is read back."""
    (tmp_path / "x.gguf").write_bytes(b"abc")
    printed = subprocess.run(["sha256sum", "x.gguf"], cwd=tmp_path, capture_output=True, check=True).stdout
    assert read_manifest(printed, "SHA256SUMS") == {"x.gguf": hashlib.sha256(b"abc").hexdigest()}
