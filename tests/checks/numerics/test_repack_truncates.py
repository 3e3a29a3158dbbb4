"""NUM308's look-alikes and edges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.checks.numerics.repack_truncates import repack_truncates
from degarble.evidence import Evidence, Settings
from degarble.finding import Finding, Severity
from degarble.target import open_target

FOLDER = "gptqmodel-gptq-sym-g128"


def judged(golden: Path, histogram: list[int], bits: int = 4) -> list[Finding]:
    """What the rule says of one module with this histogram."""
    modules = Evidence(open_target(golden / FOLDER), Settings()).get("modules")
    name = next(name for name, module in modules.items() if module.form.is_quantized)
    profile = SimpleNamespace(codes=SimpleNamespace(histogram=tuple(histogram), num_bits=bits))
    return list(repack_truncates(modules, {name: profile}))


def counts(**of: int) -> list[int]:
    histogram = [0] * 16
    for code, count in of.items():
        histogram[int(code[1:])] = count
    return histogram


def test_the_image_of_the_classic(golden: Path) -> None:
    (finding,) = judged(golden, counts(c0=400, c8=100, c15=500))
    assert finding.severity is None and "clip(w << 4, -8, 7)" in finding.message
    assert finding.measured == {"distinct_codes": 3, "zero_share": 0.1}


def test_ternary_weights_are_a_hint(golden: Path) -> None:
    (finding,) = judged(golden, counts(c0=300, c8=400, c15=300))
    assert finding.severity is Severity.WARNING and "ternary" in finding.message


@pytest.mark.parametrize(
    "histogram",
    [
        counts(c0=1, c8=9000, c15=1),  # a few outliers over zeros: a sparse or nearly dead module
        counts(c1=300, c8=400, c15=300),  # ternary weights rounded with amax / 7
        counts(c7=300, c8=400, c9=300),  # ternary weights kept as they are
        counts(c8=5000),  # one code: WGT204
        counts(c0=10, c8=10, c15=10),  # too few
        [0] * 16,
        [500] * 8 + [0] * 8,  # half a range: WGT210
        [0] + [500] * 15,  # symmetric with amax / 7: the lowest code is never used
        [0, 5, 0, 9, 0, 5, 200, 0, 900, 0, 200, 5, 0, 9, 0, 5],  # FP4 weights rounded again
    ],
)
def test_lookalikes_are_silent(golden: Path, histogram: list[int]) -> None:
    assert not judged(golden, histogram)


def test_other_widths(golden: Path) -> None:
    assert not judged(golden, [100, 0, 100, 100], bits=2)
    assert not judged(golden, [100] * 3, bits=4)
    sixteenths = [0] * 256
    sixteenths[::16], sixteenths[255] = [100] * 16, 100
    assert judged(golden, sixteenths, bits=8)
    assert not judged(golden, [7] * 256, bits=8)


def test_an_honest_share_among_hits_decides_for_all(golden: Path) -> None:
    """Every module was cut to signs; one of them had many zeros. It is no ternary module."""
    modules = Evidence(open_target(golden / FOLDER), Settings()).get("modules")
    names = [name for name, module in modules.items() if module.form.is_quantized][:3]
    histograms = [counts(c0=450, c8=100, c15=450), counts(c0=400, c8=200, c15=400), counts(c0=300, c8=400, c15=300)]
    profiles = {
        name: SimpleNamespace(codes=SimpleNamespace(histogram=tuple(h), num_bits=4))
        for name, h in zip(names, histograms, strict=True)
    }
    findings = list(repack_truncates(modules, profiles))
    assert [finding.severity for finding in findings] == [None] * 3


def zero_notes(golden: Path, folder: str) -> Iterator[Finding]:
    workspace = Workspace(open_target(golden / folder))
    modules = Evidence(open_target(golden / folder), Settings()).get("modules")
    module = next(m for m in modules.values() if m.form.is_quantized)
    zeros = module.zeros()
    assert zeros is not None
    changed = np.maximum(zeros, 1)
    changed[0, 0] = 0
    for name, array in module.replace(zeros=changed).items():
        workspace.set(name, array)
    report = check_source(workspace.source())
    assert report.summary["crashed"] == 0
    return (finding for finding in report.findings if finding.rule == "NUM308")


@pytest.mark.parametrize("folder", ["gptqmodel-awq-gemm-g128", "gptqmodel-gptq-asym-actorder-g64"])
def test_zero_points_of_0_are_a_note(golden: Path, folder: str) -> None:
    (note,) = zero_notes(golden, folder)
    assert note.severity is Severity.INFO and "minus one" in note.message
    assert note.measured["zero_points_of_0"] != 0


@pytest.mark.parametrize(
    "folder", ["gptqmodel-gptq-sym-g128", "llm-compressor-w8a8-int8", "base-bf16", "llama.cpp-q4_0"]
)
def test_symmetric_and_other_files_have_no_note(golden: Path, folder: str) -> None:
    report = check_source(open_target(golden / folder))
    assert not [finding for finding in report.findings if finding.rule == "NUM308"]
