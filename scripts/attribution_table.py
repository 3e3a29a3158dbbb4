"""Remake docs/attribution.md: how often `degarble compare` names the planted component first, and what healthy files give.

    python scripts/attribution_table.py [--healthy DIR] [--faults N] [--only WORD] [--again all|missed]

DIR is what scripts/healthy_forms.py made (`.work/healthy`): SmolLM2-135M in many forms, beside the bf16 model they were
quantised from. On every base the hidden faults and others up to N are planted, each alone, and some three at a time; then
the whole command runs on two short texts. Every run is a line of `.work/attribution/runs.jsonl` and is not made twice;
the page is rewritten after each.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.attribution.cases import BASES, REFERENCE, candidate_of, cases, commit, keep, kept, report_of, run
from scripts.attribution.page import page

from degarble.checkpoint.workspace import Workspace
from degarble.target import open_target
from degarble_engine.numerics.walked_model import WalkedModel

HEALTHY = (
    "forms/smooth-gptq-4b-g32-asymmetric", "forms/smooth-gptq-4b-g64-symmetric", "forms/smooth-compressed-4b-g64-symmetric-mse",
    "forms/smooth-gptq-4b-g64-asymmetric-gptq-order_stored", "forms/smooth-nvfp4", "forms/smooth-nvfp4-modelopt",
    "forms/smooth-fp8-channel", "forms/smooth-fp8-tensor", "forms/smooth-mxfp4", "forms/smooth-gptq-8b-g64-asymmetric",
    "forms/smooth-int8-8b-channel-narrow", "forms/smooth-mlx-4b-g64-asymmetric", "forms/smooth-gptq-3b-g64-asymmetric",
    "forms/folded-compressed-4b-g64-symmetric", "forms/folded-nvfp4", "tools/llm-compressor-w4a16_asym",
    "tools/bitsandbytes-nf4", "tools/gguf-py-q4_0", "tools/quanto-qint8", "tools/torchao-int8weightonly",
)  # fmt: skip


class Table:
    """What was run, and the page of it."""

    def __init__(self, healthy: Path, work: Path, out: Path) -> None:
        self.healthy = healthy
        self.runs_file, self.healthy_file = work / "runs.jsonl", work / "healthy.jsonl"
        self.out = out

    @cached_property
    def reference(self) -> WalkedModel:
        """What every form was made from."""
        return WalkedModel.open(str(self.healthy / REFERENCE))

    def write(self) -> None:
        """The page, from what is kept."""
        runs, healthy = kept(self.runs_file), kept(self.healthy_file)
        self.out.write_text(page(list(runs.values()), list(healthy.values())), encoding="utf-8")

    def faults(self, number: int, only: str, again: str) -> None:
        """Every run that is not there."""
        done = kept(self.runs_file)
        for case in cases(number):
            old = done.get(case.key)
            if only not in case.key or (old is not None and not _is_wanted_again(old, again)):
                continue
            found = run(case, self.healthy, self.reference)
            print(found, flush=True)
            keep(self.runs_file, found)
            self.write()

    def untouched(self, only: str, again: str) -> None:
        """Files that nobody planted anything in."""
        done = kept(self.healthy_file)
        for form in (*BASES.values(), *HEALTHY):
            there = form == BASES["unknown scheme"] or (self.healthy / form).exists()
            if only not in form or not there or (form in done and again != "all"):
                continue
            found = self._one_untouched(form)
            print(found, flush=True)
            keep(self.healthy_file, found)
            self.write()

    def _one_untouched(self, form: str) -> dict[str, Any]:
        files = sorted((self.healthy / form).glob("*.gguf"))
        work = Workspace(open_target(files[0])) if files else candidate_of(self.healthy, form)
        found: dict[str, Any] = {"key": form, "commit": commit()}
        try:
            report = report_of(work, self.reference)
        except Exception as error:  # a row of the table says so
            return found | {"failed": f"{type(error).__name__}: {error}"}
        said = [f"{c.finding.rule} {c.finding.message[:100]}" for c in report.causes[:2]]
        kl = (report.comparison or {}).get("kl_divergence")
        return found | {
            "errors": report.summary["error"],
            "warnings": report.summary["warning"],
            "kl": kl,
            "said": said,
        }


def _is_wanted_again(old: dict[str, Any], again: str) -> bool:
    is_missed = not old["first"] or not old["all"] or bool(old["strangers"])
    return (again == "all" or (again == "missed" and is_missed)) and old["commit"] != commit()


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--healthy", type=Path, default=ROOT / ".work" / "healthy")
    parser.add_argument("--work", type=Path, default=ROOT / ".work" / "attribution")
    parser.add_argument("--faults", type=int, default=11)
    parser.add_argument("--only", default="", help="a word of the base or the fault")
    parser.add_argument("--part", choices=("faults", "healthy", "both", "page"), default="both")
    parser.add_argument("--again", choices=("all", "missed"), default="", help="runs that other code made")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "attribution.md")
    given = parser.parse_args()
    table = Table(given.healthy, given.work, given.out)
    if given.part in ("faults", "both"):
        table.faults(given.faults, given.only, given.again)
    if given.part in ("healthy", "both"):
        table.untouched(given.only, given.again)
    table.write()


if __name__ == "__main__":
    main()
