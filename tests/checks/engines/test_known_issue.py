"""ENG703: engines, versions, and a list of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.api import check
from degarble.engines.issue_conditions import FACTS
from degarble.evidence import Evidence, Settings
from degarble.finding import Severity
from degarble.report.interface import Status
from degarble.target import open_target
from tests.checks.quantization.judging import judge, quantization
from tests.conftest import unpacked_golden

LIST = """
schema = 1
date = "2026-11-30"
[[issue]]
id = "own"
engine = "vllm"
versions = "<0.9"
when = { formats = ["gptq"], group_size = 128 }
rule = "ENG703"
title = "a fault of our own"
consequence = "nothing"
way_out = "none"
link = "https://github.com/org/repo/issues/1"
evidence = "maintainer word"
"""


@pytest.fixture
def own_list(tmp_path: Path) -> str:
    """A list with one issue."""
    path = tmp_path / "issues.toml"
    path.write_text(LIST)
    return str(path)


@pytest.mark.parametrize(
    ("engine", "version", "severity"),
    [
        (None, None, Severity.WARNING),
        ("vllm", None, Severity.WARNING),
        ("vllm", "0.8.5", Severity.ERROR),
        ("vllm", "0.9.1", None),
        ("sglang", "0.5.0", None),
    ],
)
def test_engine_and_version_decide(
    golden: Path, own_list: str, engine: str | None, version: str | None, severity: Severity | None
) -> None:
    """An affected version is an error, an unaffected one is silence."""
    settings = Settings(engine=engine, engine_version=version, known_issues=own_list)
    found = judge("ENG703", golden / "gptqmodel-gptq-sym-g128", settings=settings)
    assert [finding.severity for finding in found] == ([severity] if severity else [])


def test_conditions_that_are_not_met_are_silent(golden: Path, own_list: str) -> None:
    """Another group size."""
    assert judge("ENG703", golden / ORDERED, settings=Settings(known_issues=own_list)) == []


ORDERED = "gptqmodel-gptq-asym-actorder-g64"


@pytest.mark.parametrize("text", ["schema = 2", "not toml [", None])
def test_a_broken_list_is_not_called_clean(golden: Path, tmp_path: Path, text: str | None) -> None:
    """A list that cannot be read makes the report partial."""
    path = tmp_path / "issues.toml"
    if text is not None:
        path.write_text(text)
    report = check(golden / "base-bf16", known_issues=str(path), select_rules=["ENG703"])
    assert report.status is not Status.OK
    assert report.summary["crashed"] == 0


@pytest.mark.parametrize("name", sorted(path.name for path in unpacked_golden().iterdir() if path.is_dir()))
def test_facts_are_those_of_the_list(name: str) -> None:
    """Names and types, so that no condition is silently never met."""
    facts = Evidence(open_target(unpacked_golden() / name), Settings()).get("engine_facts")
    for fact, value in facts.items():
        assert fact in FACTS
        for member in value if isinstance(value, frozenset) else (value,):
            assert type(member) is FACTS[fact], (fact, member)


def test_fixed_skip_list_bug_is_found_by_its_entry(golden: Path) -> None:
    """The substring reading of old SGLang, named with the version that has the fix."""
    found = judge(
        "ENG703",
        golden / "own-deepseek-fp8-block-576",
        lambda w: quantization(w).update(modules_to_not_convert=["model.layers.0.mlp.gate"]),
        Settings(engine="sglang", engine_version="0.5.10"),
    )
    assert [finding.measured["issue"] for finding in found] == ["sglang-skip-substring"]
    assert found[0].severity is Severity.ERROR
