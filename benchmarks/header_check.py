"""Header check of a DeepSeek-V3-sized folder (163 shards, 91,991 tensors): wall time and peak memory.

Targets: under 1.5 s and 300 MB on two cores. The peer in the same run is the least anyone can do: read all headers with
the standard library's json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from deepseek_shaped import make

RUNS = 7


def check(folder: Path) -> tuple[float, float]:
    """Seconds and peak megabytes of one `degarble check --level header` process."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "degarble", "check", "--level", "header", "-q", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    assert status == 0, status
    return elapsed, usage.ru_maxrss / 1024


def plain_json(folder: Path) -> float:
    """Seconds to start Python and parse every header with json."""
    code = (
        "import json, pathlib\n"
        f"for path in pathlib.Path({str(folder)!r}).glob('*.safetensors'):\n"
        "    with path.open('rb') as stream:\n"
        "        json.loads(stream.read(int.from_bytes(stream.read(8), 'little')))"
    )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> None:
    """Make the folder, interleave the runs, print one table."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "deepseek-v3-shaped"
        tensors = make(folder)
        runs = [(check(folder), plain_json(folder)) for _ in range(RUNS)]
    seconds = [run[0][0] for run in runs]
    row = {
        "tensors": tensors,
        "check_seconds_min": round(min(seconds), 2),
        "check_seconds_median": round(statistics.median(seconds), 2),
        "peak_mb": round(max(run[0][1] for run in runs)),
        "json_seconds_median": round(statistics.median(run[1] for run in runs), 2),
        "cores": os.cpu_count(),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
