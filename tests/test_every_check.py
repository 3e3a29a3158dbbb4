"""Every fault, in every golden checkpoint it applies to: its rule is the first cause, at that place, and alone.

This file names no check. A new check with its fault is tested by being there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from functools import cache

import pytest
from _pytest.mark.structures import ParameterSet

from degarble.endpoint_faults.interface import endpoint_faults
from degarble.faults.interface import Fault, faults
from degarble.finding import Severity
from degarble.registry import RULE_ID, SECTIONS, rules, rules_on
from degarble.trace_faults.interface import trace_faults
from tests.conftest import unpacked_golden
from tests.planting import assert_first_cause, healthy_report

MANIFEST = {entry["dir"]: entry for entry in json.loads((unpacked_golden() / "MANIFEST.json").read_text())["entries"]}
PATIENTS = sorted(path.name for path in unpacked_golden().iterdir() if path.is_dir())
SICK = {"moe-mixtral-llmc-w4a16-g64"}
"""Broken by its tool (an error of its manifest), so what is planted on top may be a symptom of that."""


TEXT_RULES = ("TOK", "TPL")
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@cache
def digest_of_text(name: str) -> str:
    """Equal for checkpoints whose faults of text are the same faults; a GGUF file has its text inside."""
    folder = unpacked_golden() / name
    return hashlib.sha256(b"".join(p.read_bytes() for file in TEXT_FILES if (p := folder / file).exists())).hexdigest()


ALIKE = {
    "awq": ("auto-round-awq", "autoawq", "gptqmodel-awq"),
    "gptq": ("gptqmodel-gptq",),
    "pack-asym": ("llm-compressor-w4a16-awq-asym", "llm-compressor-w4a16-gptq-asym"),
    "pack-moe": ("moe-",),
    "nf4": ("bitsandbytes",),
    "fp8": ("llm-compressor-fp8-dynamic", "llm-compressor-fp8-static"),
    "bf16": ("base-bf16", "own-sharded-bf16", "own-untied-bf16"),
}
"""Stored alike by different tools. The others are families of their own."""
COARSE = {
    "gguf": ("gguf-py", "llama.cpp"),
    "pack": ("llm-compressor-w4a16", "llm-compressor-w8a8", "modelopt-int4"),
    "float": ("llm-compressor-fp8", "modelopt-fp8", "own-deepseek-fp8"),
    "fp4": ("llm-compressor-mxfp4", "llm-compressor-nvfp4", "modelopt-nvfp4"),
    "int8": ("quanto", "torchao"),
}
"""For rules that don't care for codes: of container, config and engines."""


def family_of(fault: Fault, name: str) -> str:
    """Checkpoints in which this fault is the same fault."""
    if fault.rule.startswith(TEXT_RULES):
        return digest_of_text(name)[:8]
    table = ALIKE if fault.rule.startswith(("QNT", "WGT", "NUM")) else COARSE | ALIKE
    return next((family for family, starts in table.items() if name.startswith(starts)), name)


def cases() -> Iterator[ParameterSet]:
    """Every fault in one checkpoint of each family, another one for every fault; `make test-slow` takes all."""
    names = sorted(set(PATIENTS) - SICK)
    for fault in faults():
        if fault.rule not in rules_on():
            continue  # of declarations, not of checkpoints: tests/kvcache/test_every_kv_check.py
        turn = zlib.crc32(fault.name.encode()) % len(names)
        families: dict[str, list[str]] = {}
        for name in (*names[turn:], *names[:turn]):
            families.setdefault(family_of(fault, name), []).append(name)
        for family, members in sorted(families.items()):
            yield pytest.param(fault, members, id=f"{fault.rule}-{fault.name}-{family}")
        for name in names if os.environ.get("DEGARBLE_ALL_PAIRS") else ():
            yield pytest.param(fault, [name], id=f"{fault.rule}-{fault.name}-in-{name}", marks=pytest.mark.slow)


@pytest.mark.parametrize(("fault", "names"), list(cases()))
def test_fault_is_the_first_cause(fault: Fault, names: list[str]) -> None:
    """In the first checkpoint that it applies to; see planting.assert_first_cause."""
    reasons = []
    for name in names:
        try:
            assert_first_cause(fault, unpacked_golden() / name)
        except pytest.skip.Exception as reason:
            reasons.append(str(reason))
        else:
            return
    pytest.skip(reasons[0])


@pytest.mark.parametrize("name", PATIENTS)
def test_healthy_is_silent(name: str) -> None:
    """No error on a healthy checkpoint, except those its manifest expects."""
    expected = set(MANIFEST[name]["expect"])
    report = healthy_report(unpacked_golden() / name)
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    causes = [c.finding for c in report.causes if c.finding.severity in (Severity.ERROR, Severity.WARNING)]
    if expected:
        assert causes and causes[0].rule in expected
    else:
        errors = [f for f in report.findings if f.severity is Severity.ERROR]
        assert not errors, [f"{f.rule} at {f.location.name()}: {f.message}" for f in errors]


def test_every_rule_has_a_fault() -> None:
    """A check without its opposite proves nothing."""
    planted = {fault.rule for fault in faults()} | {fault.rule for fault in trace_faults()}
    planted |= {fault.rule for fault in endpoint_faults()}
    assert set(rules()) - planted == set()


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_house_rules(rule) -> None:  # type: ignore[no-untyped-def]
    """Id, name, headings and edges."""
    assert RULE_ID.match(rule.id)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    headings = re.findall(r"^## (.+)$", rule.page, flags=re.MULTILINE)
    assert headings == list(SECTIONS.values()), f"{rule.id}: {headings}"
    assert all(rule.section(key) for key in SECTIONS)
    assert not rule.summary.startswith("#") and rule.summary.endswith(".")
    for other in rule.requires | rule.symptom_of:
        assert other in rules(), f"{rule.id} names {other}, which does not exist"
        assert other != rule.id


def test_edges_have_no_cycle() -> None:
    """`symptom_of` and `requires` are directed acyclic graphs."""
    for edge in ("symptom_of", "requires"):
        done: set[str] = set()

        def visit(rule: str, path: tuple[str, ...], edge: str = edge, done: set[str] = done) -> None:
            assert rule not in path, f"{edge}: {' -> '.join((*path, rule))}"
            if rule not in done:
                for other in getattr(rules()[rule], edge):
                    visit(other, (*path, rule))
                done.add(rule)

        for rule in rules():
            visit(rule, ())
