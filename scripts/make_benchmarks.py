"""Remake tables of docs/benchmarks.md: runs each benchmark as it stands there and sets its rows into the page.

    python scripts/make_benchmarks.py [NAME ...]

Without names all are run (half an hour; the content pass needs 5 GB of disk). A section that is not run keeps its rows and
their date.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
INTRO = """# Benchmarks

Ratios against peers, both measured in the same run and taking turns. `python scripts/make_benchmarks.py` remakes this page,
and with a name that section alone. Seconds are wall time unless a column says `cpu`.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """One table: where it comes from, and what it is to show."""

    name: str
    title: str
    command: str
    target: str
    keep: str = ""
    """Only rows that have this key."""


SECTIONS = (
    Section("start_up", "Start-up", "benchmarks/start_up.py", "`degarble --version` in less than 150 ms."),
    Section(
        "header_check",
        "Header check of a DeepSeek-V3-sized folder",
        "benchmarks/header_check.py",
        "163 shards, 91,991 tensors: less than 1.5 s and 300 MB. The peer reads all headers with the standard library's json, and does no more.",
    ),
    Section(
        "content_pass",
        "Content pass",
        "benchmarks/content_pass.py --real .work/real/bf16",
        "`check` less `check --level header`, at most half of hashlib's sha256 over the same files, under 600 MB.",
    ),
    Section(
        "exhaustive",
        "Content pass, every statistic of every byte",
        "benchmarks/content_pass.py --exhaustive --gigabytes 2 --real .work/real/bf16",
        "At most twice the time of sha256. INT4 with the extra `fast` (numba), which sums its codes; 3.6 without.",
    ),
    Section(
        "text_check",
        "Check of a tokenizer",
        "benchmarks/text_check.py",
        "All TOK and TPL rules on 262,145 entries in less than 1.5 s, without transformers.",
    ),
    Section(
        "detokenize",
        "Streaming detokeniser: microseconds per token",
        "benchmarks/detokenize.py",
        "At least three times as fast as `tokenizers.DecodeStream`, for one stream and for 256. `cold`: with an empty cache; `stops`: with three stop strings.",
        keep="us_per_token",
    ),
    Section(
        "exactness",
        "Streaming detokeniser: exactness",
        "benchmarks/detokenize.py",
        "Sequences whose deltas join to the byte stream, over all corpora, random ids and noise.",
        keep="exact",
    ),
    Section(
        "stress",
        "Pressure test of published tokenizers",
        "benchmarks/stress.py",
        "No damage on valid ids in any corpus (`exact percent damaged`, `num different`, `num late chars` are 0), at most 1 µs per token. `naive`: each token decoded alone. Random ids and byte noise have no round trip.",
    ),
    Section(
        "layer_walk",
        "Layer walk on the shapes of an 8B Llama",
        "benchmarks/layer_walk.py",
        "A walk peaks below 2.5 layers, as held in fp32, at any depth; at most 1.3 times the forwards that must be made, the peer being transformers' model with all weights in memory, which loads nothing.",
    ),
    Section(
        "trace_replay",
        "KV trace: replay and writer",
        "benchmarks/trace_replay.py --events 500000",
        "500,000 events a second on one core with bounded memory, less than 1 µs to write one. The peer parses the same lines with json.loads and does no more.",
    ),
    Section(
        "allocators",
        "Block manager beside vLLM's own",
        "benchmarks/allocators.py",
        "Calls a second of processor time on one workload: prompts of up to 2,500 tokens in chunks of 512, half with a shared prefix, then 128 tokens one by one. vLLM's manager is measured where it can be imported (`--vllm`, or BENCHMARK_VLLM here).",
    ),
    Section(
        "serve_speed",
        "Reference engine: tokens a second",
        "benchmarks/serve_speed.py --int4 .work/real/gptq --batches 1,8 --decode 128",
        "SmolLM2-135M, prompts of 512 tokens. Decoding at least 1.5 times transformers' generate and as fast as vLLM's CPU build at every batch, INT4 alone 1.3 times llama.cpp's Q4, prefill 0.9 of the best. Weights in fp16 panels, sums in fp32; ours with the extra `fast`. `roofline`: share of a step that reading weights and cache once would take.",
    ),
    Section(
        "serve_speed_32",
        "Reference engine: tokens a second, batch 32",
        "benchmarks/serve_speed.py --batches 32 --decode 128 --budget 240",
        "As above.",
    ),
    Section(
        "guards_cost",
        "Guards: what they cost",
        "benchmarks/guards_cost.py",
        "At most 2 % of the time per output token. Two engines take turns step by step, and the slowest tenth of either is left out.",
    ),
    Section(
        "sanitize",
        "Sanitiser: MB/s of UTF-8",
        "benchmarks/sanitize.py",
        "15 MB/s on every kind of text, on one core. The peers do a part of the work.",
        keep="mb_per_s",
    ),
)
FORMER = re.compile(r"<!-- begin (\w+) -->\n(.*?)<!-- end \1 -->\n", re.DOTALL)


def rows_of(command: str) -> list[dict[str, Any]]:
    """What a benchmark prints: one JSON object a line."""
    vllm = os.environ.get("BENCHMARK_VLLM")
    further = ["--vllm", vllm] if vllm and "allocators" in command else []
    shown = subprocess.run(
        [sys.executable, *command.split(), *further], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return [json.loads(line) for line in shown.splitlines() if line.startswith("{")]


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """`{"us_per_token": {"ours": 1}}` as `{"us_per_token ours": 1}`."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        found.update(
            {f"{key} {inner}": cell for inner, cell in value.items()} if isinstance(value, dict) else {key: value}
        )
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"| {' | '.join(key.replace('_', ' ') for key in columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = ("" if row.get(key) is None else str(row[key]) for key in columns)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def section(one: Section, rows: list[dict[str, Any]]) -> str:
    """Heading, target, command, conditions, table."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    conditions = (
        f"{date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the end"
    )
    chosen = [flat(row) for row in rows if one.keep in row or not one.keep]
    return f"## {one.title}\n\n{one.target}\n\n`python {one.command}` ({conditions})\n\n{table(chosen)}\n"


def main() -> None:
    """Run the chosen ones and write the page; benchmarks that two sections share run once."""
    wanted = sys.argv[1:] or [one.name for one in SECTIONS]
    unknown = set(wanted) - {one.name for one in SECTIONS}
    if unknown:
        sys.exit(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in SECTIONS)}")
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    parts = {match.group(1): match.group(2) for match in FORMER.finditer(page)}
    results: dict[str, list[dict[str, Any]]] = {}
    for one in SECTIONS:
        if one.name in wanted:
            print(one.name, file=sys.stderr, flush=True)
            if one.command not in results:
                results[one.command] = rows_of(one.command)
            parts[one.name] = section(one, results[one.command])
    bodies = [
        f"<!-- begin {one.name} -->\n{parts[one.name]}<!-- end {one.name} -->\n"
        for one in SECTIONS
        if one.name in parts
    ]
    PAGE.write_text(INTRO + "\n" + "\n".join(bodies), encoding="utf-8")


if __name__ == "__main__":
    main()
