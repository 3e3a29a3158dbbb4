"""The pressure test of published tokenizers: damage by the naive decoder and by ours, and the cost of a token.

Target: nothing damaged and nothing late wherever ids are valid, at most 1 µs per token. Reads `.work/tokenizers`
(scripts/extract_tokenizers.py). One JSON row a line.

    python benchmarks/stress.py [NAME ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".work" / "tokenizers"
NAMES = ("deepseek_v3", "qwen3", "llama3_1", "gptoss", "gemma3", "llama2")


def main() -> None:
    """Every corpus of every tokenizer that is there."""
    for name in sys.argv[1:] or NAMES:
        if not (FOLDER / name / "tokenizer.json").is_file():
            print(json.dumps({"tokenizer": name, "skipped": "python scripts/extract_tokenizers.py"}))
            continue
        command = [sys.executable, "-m", "degarble", "tokenizer", "stress", str(FOLDER / name), "--format", "json"]
        shown = subprocess.run(command, check=False, capture_output=True, text=True).stdout
        for row in json.loads(shown)["rows"]:
            print(json.dumps({"tokenizer": name, **row}), flush=True)


if __name__ == "__main__":
    main()
