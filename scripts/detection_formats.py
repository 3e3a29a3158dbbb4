"""The table of docs/detection.md that plants every fault in values in every stored format: found first, at its place?

It runs what tests/test_every_check.py asserts, and counts instead. Run by scripts/detection_matrix.py, or alone to look at it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from _pytest.outcomes import Skipped
from tests.conftest import unpacked_golden
from tests.planting import assert_first_cause, healthy_evidence
from tests.test_every_check import PATIENTS, SICK

from degarble.api import stored_formats
from degarble.faults.interface import faults
from degarble.registry import Level, rules

WORKERS = 2
FAMILIES = {
    "GPTQ": ("gptq",),
    "AWQ": ("awq",),
    "compressed-tensors int": ("compressed_pack", "compressed_int"),
    "ModelOpt int4": ("modelopt_int4",),
    "bitsandbytes": ("bitsandbytes_4bit",),
    "quanto, torchao": ("quanto", "torchao"),
    "FP8": ("fp8", "fp8_block", "compressed_fp8_block"),
    "NVFP4, MXFP4": ("nvfp4", "mxfp4", "modelopt_nvfp4"),
    "GGUF": ("gguf",),
    "bf16": ("plain",),
}
"""Heading of a column -> names of the formats in it."""


def family(path: Path) -> str:
    """Heading of the column of one checkpoint."""
    formats = {label.split("-")[0] for label in stored_formats(healthy_evidence(path))}
    if path.name.startswith("gguf"):  # plain values in a GGUF file
        return "GGUF"
    return next(heading for heading, names in FAMILIES.items() if formats & set(names))


def value_rules() -> list[str]:
    """Rules that read values."""
    return sorted(i for i, rule in rules().items() if any(check.level is Level.CONTENT for check in rule.checks))


def judge(name: str) -> tuple[str, list[tuple[str, str, str]]]:
    """The column of one checkpoint, and (rule, fault, found | missed | -) for each fault in values."""
    path = unpacked_golden() / name
    wanted = set(value_rules())
    rows = []
    for fault in faults():
        if fault.rule in wanted:
            try:
                assert_first_cause(fault, path)
                said = "found"
            except Skipped:
                said = "-"
            except AssertionError as error:
                said = f"missed: {str(error)[:200]}"
            rows.append((fault.rule, fault.name, said))
    return family(path), rows


def table() -> Iterator[str]:
    """Lines of Markdown: a rule a row, a family of formats a column, faults found first of faults that apply."""
    names = sorted(set(PATIENTS) - SICK)
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    missed = []
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for name, (column, rows) in zip(names, pool.map(judge, names), strict=True):
            print(name, column, file=sys.stderr, flush=True)
            for rule, fault, said in rows:
                if said != "-":
                    counts[rule, column][0] += said == "found"
                    counts[rule, column][1] += 1
                if said.startswith("missed"):
                    missed.append(f"{rule} {fault} in {name}: {said}")
    columns = [c for c in FAMILIES if any(key[1] == c for key in counts)]
    total = [sum(pair[i] for pair in counts.values()) for i in (0, 1)]
    yield f"{total[0]} of {total[1]} plants are the first cause, at their place, with nothing else beside them."
    yield ""
    yield "| rule | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for rule in value_rules():
        cells = [f"{found} of {of}" if of else "" for found, of in (counts[rule, c] for c in columns)]
        if any(cells):
            yield f"| {rule} {rules()[rule].name} | " + " | ".join(cells) + " |"
    yield from ("", *missed) if missed else ()


if __name__ == "__main__":
    print("\n".join(table()))
