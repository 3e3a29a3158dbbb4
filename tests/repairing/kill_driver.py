"""Runs a repair in forked children and kills them with SIGKILL after a random while: sick, reference, folder, moments."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from degarble.repairing.fix import fix


def child(sick: str, reference: str, out: Path) -> int:
    """Start one repair."""
    pid = os.fork()
    if pid == 0:
        fix(sick, out, reference=reference)
        os._exit(0)
    return pid


def main() -> None:
    """Print what was found after each kill: whether the folder was there, and its file names."""
    sick, reference, folder, moments = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    start = time.monotonic()
    os.waitpid(child(sick, reference, folder / "whole"), 0)
    whole = time.monotonic() - start
    rng = random.Random(7)
    found = []
    for number in range(moments):
        out = folder / f"out-{number}"
        pid = child(sick, reference, out)
        time.sleep(rng.uniform(0.3, 1.1) * whole)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        found.append(str(out) if out.exists() else None)
    print(json.dumps({"whole": str(folder / "whole"), "outs": found}))


if __name__ == "__main__":
    main()
