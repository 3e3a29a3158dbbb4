"""What values cost: the content pass of `check` against hashlib's sha256 over the same files.

    python benchmarks/content_pass.py [--gigabytes 4] [--forms int4 bf16 fp8] [--real FOLDER] [--exhaustive]

Target: at most 0.5 of the checksum on two cores, below 600 MB. Each line is the best of interleaved runs, every run a
process of its own, files hot in the page cache. `profiles` is the time to read and judge all values; `content_pass` is
all of `check` at content level less the same at header level. Processor seconds stand beside wall seconds: on a busy
machine only they compare.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from llama_shaped import make

CODE = {
    "sha256": """
import glob, hashlib
for file in sorted(glob.glob(folder + "/*.safetensors")):
    with open(file, "rb") as stream:
        hashlib.file_digest(stream, "sha256")
""",
    "profiles": """
evidence = Evidence(open_target(folder), Settings(exhaustive={exhaustive}))
evidence.get("modules")
begin = clock()
for name in ("profiles", "module_profiles", "joint"):
    evidence.get(name)
""",
    "header": "check(folder, level='header')",
    "content": "check(folder, exhaustive={exhaustive})",
}
FRAME = """
import json, resource, sys, time
from degarble import check
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
folder = sys.argv[1]
clock = lambda: (time.perf_counter(), time.process_time())
begin = clock()
{code}
end = clock()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([end[0] - begin[0], end[1] - begin[1], peak]))
"""

Timing = list[float]
"""[wall seconds, processor seconds, peak megabytes]"""


def timed(what: str, folder: Path, exhaustive: bool) -> Timing:
    """One run in a fresh process."""
    code = CODE[what].replace("{exhaustive}", str(exhaustive))
    command = [sys.executable, "-c", FRAME.replace("{code}", code), str(folder)]
    timing: Timing = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return timing


def made(folder: Path, form: str, num_bytes: int, real: Path | None) -> int:
    """Write the checkpoint in a process of its own: a child inherits its parent's peak memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(make, folder, form, num_bytes, real).result()


def measure(folder: Path, runs: int, exhaustive: bool) -> dict[str, Timing]:
    """The best of interleaved runs; the largest peak."""
    found: dict[str, list[Timing]] = {what: [] for what in CODE}
    for _ in range(runs):
        for what in CODE:
            found[what].append(timed(what, folder, exhaustive))
    return {
        what: [min(t[0] for t in timings), min(t[1] for t in timings), max(t[2] for t in timings)]
        for what, timings in found.items()
    }


def line(form: str, size: int, best: dict[str, Timing]) -> str:
    """One row of the table."""
    sha = best["sha256"]
    content = [best["content"][n] - best["header"][n] for n in (0, 1)]
    row = {
        "form": form,
        "gb": round(size / 1e9, 2),
        "sha256_s": round(sha[0], 2),
        "sha256_cpu_s": round(sha[1], 2),
        "profiles_s": round(best["profiles"][0], 2),
        "profiles_ratio": round(best["profiles"][0] / sha[0], 2),
        "content_pass_s": round(content[0], 2),
        "content_pass_cpu_s": round(content[1], 2),
        "content_pass_ratio": round(content[0] / sha[0], 2),
        "peak_mb": round(best["content"][2]),
    }
    return json.dumps(row)


def main() -> None:
    """Make one checkpoint after the other, time it, delete it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--forms", nargs="*", default=["int4", "bf16", "fp8"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--exhaustive", action="store_true", help="statistics of all values, not of a sample")
    parser.add_argument("--real", type=Path, help="a folder with a real model, SmolLM2-135M, to take values from")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    for form in options.forms:
        folder = Path(tempfile.mkdtemp(prefix="degarble-content-", dir=options.scratch)) / form
        try:
            if shutil.disk_usage(options.scratch).free < options.gigabytes * 1.2e9 + 2e9:
                sys.exit(f"{options.scratch}: not enough room for {options.gigabytes} GB")
            size = made(folder, form, int(options.gigabytes * 1e9), options.real)
            print(line(form, size, measure(folder, options.runs, options.exhaustive)), flush=True)
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
