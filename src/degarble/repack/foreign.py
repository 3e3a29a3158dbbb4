"""A chain of the user's own functions, each batch of runs in a fresh process with a time and a memory limit.

Arrays travel as .npy files in a temporary folder, never as pickles. The process is a safety belt against endless loops
and runaway memory, not a sandbox: it runs code that the user named, with the user's rights.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import UsageError
from degarble.repack import worker
from degarble.repack.verify import Chain

LOG_TAIL = 400
"""Characters of a crashed process's output that are shown."""


def foreign_chain(
    functions: Sequence[str], present: Callable[[Array], Array], *, timeout_seconds: float, memory_bytes: int
) -> Chain:
    """Runs `functions` one after the other on what `present` makes of a code matrix.

    The chain raises UsageError if a function cannot be found, fails, or exceeds a limit.
    """
    for name in functions:
        place, _, path = name.rpartition(":")
        if not place or not path:
            raise UsageError(f"{name!r} is not of the form module:function or file.py:function")

    def run(matrices: Sequence[Array]) -> list[list[Array]]:
        given = [present(matrix) for matrix in matrices]
        request = {
            "functions": list(functions),
            "memory_bytes": memory_bytes,
            "cpu_seconds": int(timeout_seconds) + 1,
            "path": os.getcwd(),
        }
        with tempfile.TemporaryDirectory(prefix="degarble-repack.") as name:
            folder = Path(name)
            (folder / "request.json").write_text(json.dumps(request))
            np.save(folder / "inputs.npy", np.stack(given))
            _run(folder, timeout_seconds)
            steps = [np.load(folder / f"step_{number}.npy") for number in range(len(functions))]
        return [[first, *(step[index] for step in steps)] for index, first in enumerate(given)]

    return run


def _run(folder: Path, timeout_seconds: float) -> None:
    """Start the worker, wait, and raise UsageError with its own words if it did not finish well."""
    command = [sys.executable, "-P", worker.__file__, str(folder)]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=os.name == "posix"
        )
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise UsageError(f"the function did not finish within {timeout_seconds:g} seconds") from None
        finally:
            _end(process)
    result = folder / "result.json"
    if not result.is_file():
        tail = log.read_text(errors="replace")[-LOG_TAIL:].strip()
        raise UsageError(
            f"the function's process ended with status {process.returncode}" + (f": {tail}" if tail else "")
        )
    answer = json.loads(result.read_text())
    if answer:
        raise UsageError(f"{answer['function']} could not be run: {answer['error']}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and whatever it started; nothing if it has ended."""
    if process.poll() is not None:
        return
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
