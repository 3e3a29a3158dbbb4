"""Stress of an allocator that the user named, with a time and a memory limit.

The process is a safety belt against endless loops and runaway memory, not a sandbox: it runs code that the user named,
with the user's rights.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from degarble.errors import UsageError
from degarble.kvcache import stress_worker
from degarble.kvcache.stress import StressResult
from degarble.kvcache.stress_memory import Setting

LOG_TAIL = 400


def stress_foreign(
    allocator: str,
    setting: Setting,
    *,
    seeds: range,
    num_operations: int,
    timeout_seconds: float,
    memory_bytes: int,
) -> StressResult:
    """Run all seeds in one process. Raises UsageError if it cannot be loaded, fails outside an operation, or takes too long."""
    place, _, name = allocator.rpartition(":")
    if not place or not name:
        raise UsageError(f"{allocator!r} is not of the form module:function or file.py:function")
    request = {
        "allocator": allocator,
        "setting": msgspec.to_builtins(setting),
        "seeds": [seeds.start, seeds.stop],
        "num_operations": num_operations,
        "memory_bytes": memory_bytes,
        "cpu_seconds": int(timeout_seconds) + 1,
        "path": os.getcwd(),
    }
    with tempfile.TemporaryDirectory(prefix="degarble-stress.") as made:
        folder = Path(made)
        (folder / "request.json").write_text(json.dumps(request))
        answer = _run(folder, timeout_seconds)
    if "error" in answer:
        raise UsageError(f"{allocator} could not be run: {answer['error']}")
    return msgspec.convert(answer["result"], StressResult)


def _run(folder: Path, timeout_seconds: float) -> dict[str, object]:
    command = [sys.executable, "-P", stress_worker.__file__, str(folder)]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=os.name == "posix"
        )
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise UsageError(f"the allocator did not finish within {timeout_seconds:g} seconds") from None
        finally:
            _end(process)
    result = folder / "result.json"
    if not result.is_file():
        tail = log.read_text(errors="replace")[-LOG_TAIL:].strip()
        raise UsageError(
            f"the allocator's process ended with status {process.returncode}" + (f": {tail}" if tail else "")
        )
    answer: dict[str, object] = json.loads(result.read_text())
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and whatever it started; nothing if it has ended."""
    if process.poll() is not None:
        return
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
