"""Reports that the writers are tried on: with causes and symptoms, with ten thousand findings, with hostile names."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.diagnosis import diagnose
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import NotApplicable, Patient
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.injection import find_fault
from degarble.registry import Level, rules
from degarble.report.interface import Report, Target
from degarble.runner import Outcome, RuleResult
from degarble.target import open_target
from tests.conftest import unpacked_golden

GOLDEN_NAMES = sorted(path.name for path in unpacked_golden().iterdir() if path.is_dir())


@cache
def broken(name: str, *faults: str, level: Level = Level.CONTENT, profile: bool = False) -> Report:
    """What is said of a golden checkpoint with planted faults, those that apply."""
    source = open_target(unpacked_golden() / name)
    evidence, workspace = Evidence(source, Settings()), Workspace(source)
    for number, fault in enumerate(faults):
        patient = Patient(evidence=evidence, workspace=workspace, rng=random.Random(number))
        try:
            find_fault(fault).function(patient)
        except NotApplicable:
            continue
    return check_source(workspace.source(), Settings(level=level), profile=profile)


def report_of(*findings: Finding, target: str = "models/tiny", **facts: Any) -> Report:
    """A report around findings, diagnosed as the tool does."""
    diagnosis = diagnose(findings, {rule.id: rule.symptom_of for rule in rules().values()})
    results = tuple(
        RuleResult(rule=rule, outcome=Outcome.FINDINGS) for rule in sorted({finding.rule for finding in findings})
    )
    report = Report(
        target=Target(path=target, kind="hf-folder", formats=("gptq-int4",)),
        findings=diagnosis.findings,
        causes=diagnosis.causes,
        results=results,
    )
    return replace(report, **facts)


def finding(rule: str = "QNT101", message: str = "a scale is missing", **facts: Any) -> Finding:
    """One finding of a real rule."""
    place = facts.pop("location", Location(file="model.safetensors", tensor="layers.3.q_proj.scales", layer=3))
    known = rules().get(rule)
    given: dict[str, Any] = {
        "severity": Severity.ERROR,
        "confidence": Confidence.PROVEN,
        "name": known.name if known else "made-up",
    }
    return Finding(location=place, message=message, rule=rule, **(given | facts))


def explained() -> Report:
    """A cause and its symptom: a truncated file lacks a scale."""
    cut = finding("CKP101", "cut", location=Location(file="model.safetensors"))
    report = report_of(finding(), cut)
    assert [[symptom.rule for symptom in cause.symptoms] for cause in report.causes] == [["QNT101"]]
    return report


def many(number: int) -> Report:
    """A checkpoint that is broken in so many places, none folded: every finding is a cause of its own."""
    return report_of(
        *(
            finding(
                location=Location(
                    file=f"model-{n % 60:05d}-of-00060.safetensors",
                    tensor=f"model.layers.{n % 61}.mlp.experts.{n // 61}.down_proj.weight_scale",
                    module=f"model.layers.{n % 61}.mlp.experts.{n // 61}.down_proj",
                    layer=n % 61,
                    expert=n // 61,
                ),
                message=f"model.layers.{n % 61}.mlp.experts.{n // 61}.down_proj has codes and no scale",
                measured={"missing_companions": 1},
                bound={"missing_companions": 0},
                fix=Fix(id="restore-companion", safe=False),
            )
            for n in range(number)
        )
    )


HOSTILE = {
    "tag": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "end of data block": "</script><script>alert(1)</script>",
    "attribute": "\" onmouseover=alert(1) x='",
    "comment": "--><!--]]>&amp;&#60;",
    "control": "a\x00b\x1b[31mred\x07\r\x9b31m",
    "direction": "safe\u202egnp.exe\u2066\u200f",
    "invisible": "a\u200bb\ufeffc\U000e0041",
    "surrogate": "half \ud83d and \udc00",
    "not a character": "\ufffe\uffff\U0010ffff",
    "command": "::error::x\n::stop-commands::t\n##[set-env name=A]b %0A::warning::y",
    "markdown": "[x](http://evil.test) ![i](http://evil.test/i) www.evil.test @everyone #1 `code` | a | **b** _c_",
    "heading": "# title\n===\n- item\n1. one\n> quote\n```\nfence",
    "formula": "$x$ \\(y\\) ~~z~~",
}


def hostile(text: str) -> Report:
    """A report in which every text is hostile."""
    value = finding(
        location=Location(file=text, tensor=text, module=text, key=text, token=text, request=text, layer=3),
        message=text,
        name=text,
        measured={text: text, "list": [text, math.inf], "infinite": math.inf, "none": math.nan},
        bound={text: -math.inf},
        predicts=text,
        fix=Fix(id=text, safe=True),
        places=tuple(Location(file=text, tensor=text) for _ in range(30)),
    )
    odd = finding("CKP101", text, severity=Severity.WARNING, location=Location(file=text))
    note = finding("ENG701", text, severity=Severity.INFO, location=Location(file="config.json", key=text))
    report = report_of(value, odd, note, target=f"models/{text}".replace("\n", ""))
    skipped = RuleResult(rule="CFG109", outcome=Outcome.SKIPPED, reason=text)
    crashed = RuleResult(rule="CFG110", outcome=Outcome.CRASHED, reason=text)
    profile = {text: {"layer": 3, "values": {"absmax": math.inf}}, f"{text}2": {"layer": 4}}
    return replace(
        report, results=(*report.results, skipped, crashed), unjudged={text: text}, profile=profile, version=text
    )


def layered(num_layers: int = 32) -> Report:
    """A value finding in layer 20 of a model with a profile."""
    dice = random.Random(7)

    def row(layer: int) -> dict[str, Any]:
        odd = layer == 20
        shape = [math.exp(-(((code - 7.5 + 1.5 * odd) / 3) ** 2)) * (900 + dice.random() * 60) for code in range(16)]
        return {
            "layer": layer,
            "values": {
                "absmax": (0.4 + dice.random() * 0.2) * (40 if odd else 1),
                "rms": 0.02 * (1 + dice.random() / 5),
            },
            "scales": {"log2_median": -7 + dice.random() + 5 * odd, "absmax": 0.02 * (30 if odd else 1), "zeros": 0},
            "codes": {"histogram": [round(share) for share in shape]},
            "num_dead_rows": 0,
        }

    profile = {f"model.layers.{n}.mlp.down_proj": row(n) for n in range(num_layers)}
    where = Location(
        file="model.safetensors",
        tensor="model.layers.20.mlp.down_proj.scales",
        module="model.layers.20.mlp.down_proj",
        layer=20,
    )
    value = finding(
        "WGT206",
        "model.layers.20.mlp.down_proj.scales: the median scale is 32 times that of its peers",
        location=where,
        measured={"ratio": 31.7},
        bound={"ratio_max": 8.0},
        confidence=Confidence.LIKELY,
    )
    below = finding("NUM301", "its largest value leaves half precision", location=where, severity=Severity.WARNING)
    return report_of(value, below, profile=profile)


def saved(report: Report, path: Path) -> Path:
    """The JSON document of a report on disk."""
    from degarble.report.json import render

    path.write_text(render(report), encoding="utf-8")
    return path
