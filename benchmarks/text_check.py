"""`degarble check` of a tokenizer of 262,145 entries, all rules for text, beside what loading it costs the library.

Target: under 1.5 s as a whole process, without transformers. Reads `.work/tokenizers` (scripts/extract_tokenizers.py).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".work" / "tokenizers"
NAMES = ("gemma3", "llama3_1", "deepseek_v3")
RUNS = 7
LIBRARY = """
import sys
from tokenizers import Tokenizer
Tokenizer.from_file(sys.argv[1] + '/tokenizer.json')
"""


def seconds(*arguments: str) -> float:
    """One run of a whole process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """The two take turns; one row a tokenizer."""
    for name in NAMES:
        folder = FOLDER / name
        if not (folder / "tokenizer.json").is_file():
            print(json.dumps({"tokenizer": name, "skipped": "python scripts/extract_tokenizers.py"}))
            continue
        runs = [
            (seconds("-m", "degarble", "check", "-q", str(folder)), seconds("-c", LIBRARY, str(folder)))
            for _ in range(RUNS)
        ]
        ours, theirs = ([run[at] for run in runs] for at in (0, 1))
        row = {
            "tokenizer": name,
            "check_seconds_min": round(min(ours), 2),
            "check_seconds_median": round(statistics.median(ours), 2),
            "library_load_seconds_median": round(statistics.median(theirs), 2),
            "ratio": round(statistics.median(ours) / statistics.median(theirs), 1),
            "cores": os.cpu_count(),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
