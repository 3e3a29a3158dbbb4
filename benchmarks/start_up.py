"""How long `degarble --version` takes as a whole process, beside an empty Python. Target: under 150 ms."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

RUNS = 15


def seconds(arguments: list[str]) -> float:
    """One run of a whole process."""
    start = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Interleave the two commands and print medians."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "degarble --version": [sys.executable, "-m", "degarble", "--version"],
        "degarble rules": [sys.executable, "-m", "degarble", "rules"],
        "degarble --help": [sys.executable, "-m", "degarble", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, arguments in commands.items():
            times[name].append(seconds(arguments))
    for name, values in times.items():
        row = {"min_ms": round(min(values) * 1000), "median_ms": round(statistics.median(values) * 1000)}
        print(json.dumps({"command": name, **row}))


if __name__ == "__main__":
    main()
