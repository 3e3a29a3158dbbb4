"""Ctrl-C in the middle of a scan: status 2, one document that says so, no partial output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

NUM_TENSORS = 384
BYTES = 1 << 25
"""Of zeros, sparse on disk: 12 GiB take seconds to scan."""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A checkpoint whose values take longer to read than anybody waits."""
    entries = {
        f"model.layers.{layer}.mlp.up_proj.weight": {
            "dtype": "BF16",
            "shape": [BYTES // 2 // 4096, 4096],
            "data_offsets": [layer * BYTES, (layer + 1) * BYTES],
        }
        for layer in range(NUM_TENSORS)
    }
    header = json.dumps(entries).encode()
    file = tmp_path / "large" / "model.safetensors"
    file.parent.mkdir()
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(file, 8 + len(header) + NUM_TENSORS * BYTES)
    return file.parent


def num_threads(pid: int) -> int:
    """Two more than before as soon as tensors are read."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Threads"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see that the scan has begun")
def test_control_c_in_mid_scan(large: Path, tmp_path: Path) -> None:
    report, cache = tmp_path / "report.json", tmp_path / "cache"
    command = [sys.executable, "-m", "degarble", "check", str(large), "--format", "json", "--output", str(report)]
    process = subprocess.Popen(
        [*command, "--cache", str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and num_threads(process.pid) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "over before it could be interrupted"
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=30)
    assert process.returncode == 2, said
    assert b"interrupted" in shown + said and b"Traceback" not in said
    assert not report.exists()
    assert not cache.exists() or not list(cache.iterdir())
    assert [path.name for path in tmp_path.iterdir() if path not in (large, cache)] == []
