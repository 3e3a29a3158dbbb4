"""The library's calls for KV caches: judge a declaration, and say what a stress run found, as ordinary reports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from degarble.checkpoint.folder import LocalFile
from degarble.checkpoint.interface import Source
from degarble.errors import DegarbleError, TargetError
from degarble.evidence import Evidence, Settings
from degarble.evidence.cache_declaration import KV_DECLARATION
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.kvcache import judge
from degarble.kvcache.contract import Violation
from degarble.kvcache.declaration import KVDeclaration
from degarble.kvcache.finding_of import finding_of
from degarble.kvcache.stress import StressResult
from degarble.registry import Rule, rules, rules_on
from degarble.report.interface import Report, Target
from degarble.report.judged import judged_report
from degarble.runner import RuleResult, run

LAYOUT_RULES = ("KVC601", "KVC612", "KVC614", "KVC619", "KVC624", "KVC629", "KVC631")
"""Rules that a declaration's layouts are judged by; a trace is judged by them too."""

STRESS_RULES = (
    "KVC602",
    "KVC603",
    "KVC604",
    "KVC605",
    "KVC606",
    "KVC608",
    "KVC615",
    "KVC616",
    "KVC617",
    "KVC625",
    "KVC626",
)
"""What a stress run can find broken; all of them are errors."""


def lint(path: str | os.PathLike[str]) -> Report:
    """Judge a declaration (JSON, TOML, or a trace, whose first line is read). What is wrong with the file is in the report."""
    name = os.fspath(path)
    try:
        return lint_source(LocalFile(name, KV_DECLARATION))
    except TargetError as error:
        return Report(target=Target(path=name, kind=KV_DECLARATION), failure=str(error))


def lint_source(source: Source) -> Report:
    """The same for an opened source; what `lint` and the tests share."""
    evidence = Evidence(source, Settings())
    target = Target(path=source.path, kind=KV_DECLARATION)
    try:
        declaration: KVDeclaration = evidence.get("cache_declaration")
        results = [*_judge_layouts(declaration, evidence), *run(evidence, declaration_rules())]
    except DegarbleError as error:
        return Report(target=target, failure=str(error))
    return _report(target, results, evidence.coverage.unjudged)


def declaration_rules() -> list[Rule]:
    """Rules whose every check asks for evidence of a declaration."""
    return list(rules_on("cache_").values())


def _judge_layouts(declaration: KVDeclaration, evidence: Evidence) -> list[RuleResult]:
    file = Path(next(iter(evidence.get("source").files()))).name
    found: dict[str, list[Finding]] = {rule: [] for rule in LAYOUT_RULES}
    for at, group in enumerate(declaration.groups):
        reason = judge.unjudged(declaration, group)
        if reason is not None:
            evidence.coverage.add(f"groups[{at}]", reason)
        for violation in judge.of_group(declaration, group):
            found[violation.rule].append(_finding(violation, file, f"groups[{at}]"))
    for violation in judge.head_violations(declaration):
        found[violation.rule].append(_finding(violation, file, ""))
    results = [RuleResult.of(rule, findings, _why_not(rule, declaration)) for rule, findings in found.items()]
    return results


def _finding(violation: Violation, file: str, prefix: str) -> Finding:
    rule = rules()[violation.rule]
    return finding_of(
        violation, file, prefix=prefix, name=rule.name, severity=rule.severity, confidence=Confidence.PROVEN
    )


def _why_not(rule: str, declaration: KVDeclaration) -> str | None:
    """Why a rule had nothing to judge."""
    groups = declaration.groups
    if rule == "KVC614":
        return None if declaration.num_kv_heads is not None else "no num_kv_heads is declared"
    judged = {
        "KVC612": any(group.shape is not None and group.axes is None for group in groups),
        "KVC624": any(group.kernel_block_size is not None for group in groups),
        "KVC629": any(group.owner is not None for group in groups),
        "KVC631": any(group.kind == "mla" or (group.axes and "latent" in group.axes) for group in groups),
    }
    sayable = judged.get(rule, any(judge.unjudged(declaration, group) is None for group in groups))
    return None if sayable else "no group declares what this rule judges"


def _report(target: Target, results: Sequence[RuleResult], unjudged: Mapping[str, str]) -> Report:
    return judged_report(target, sorted(results, key=lambda result: result.rule), rules(), unjudged=unjudged)


def stress_report(allocator: str, result: StressResult) -> Report:
    """What a stress run found, as a report; the shrunk operations are in the finding's numbers."""
    breach = result.breach
    results = []
    for rule in STRESS_RULES:
        findings: list[Finding] = []
        if breach is not None and breach.rule == rule:
            steps = [f"{one.kind}({one.choice}, {one.amount})" for one in result.operations]
            findings.append(
                Finding(
                    location=Location(
                        line=breach.operation,
                        request=breach.request,
                        block=breach.block,
                        slot=breach.slot,
                        position=breach.position,
                    ),
                    message=f"{breach.message}; seed {result.seed}, operation {breach.operation} of {len(steps)} (shrunk)",
                    severity=Severity.ERROR,
                    confidence=Confidence.PROVEN,
                    measured={"seed": result.seed, "operations": [*steps[:40]]},
                    bound={"broken_invariants": 0},
                    rule=rule,
                    name=rules()[rule].name,
                )
            )
        results.append(RuleResult.of(rule, findings))
    return _report(Target(path=allocator, kind="kv-allocator"), results, {})


__all__ = ["lint", "lint_source", "stress_report"]
