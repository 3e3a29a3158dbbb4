"""The report of `degarble kv self-check`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from degarble.api import stored_formats
from degarble.errors import EvidenceMissing, TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.finding import Confidence
from degarble.kvcache.contract import Violation
from degarble.kvcache.finding_of import finding_of
from degarble.kvcache.judge_records import path_violations, poison_violations
from degarble.registry import rules
from degarble.report.interface import Report, Target
from degarble.report.judged import judged_report
from degarble.runner import RuleResult
from degarble.target import open_target
from degarble_engine.live_cache.self_check import self_check
from degarble_engine.models.load import load_model
from degarble_engine.numerics.tokens import built_in_texts, encode, random_batch


def judge_own_engine(target: str, text: str | None, block_size: int) -> Report:
    """Run and judge. Raises TargetError where the model cannot be run, UsageError where the text is too short."""
    evidence = Evidence(open_target(target), Settings())
    model, _ = load_model(evidence, torch.float32)
    try:
        batch = encode([text] if text else built_in_texts()[:1], [evidence], "text")
    except EvidenceMissing:
        if text is not None:
            raise TargetError(f"{target}: has no tokenizer.json that could be read: the text cannot be run") from None
        batch = random_batch(model.vocab_size, 1)
    ids = batch.ids[0][batch.valid[0]].tolist()
    if len(ids) < 3:
        raise UsageError(f"--text has {len(ids)} tokens, at least 3 are needed")
    found = self_check(model, ids, block_size=block_size)
    source = evidence.get("source")
    results = [
        _result("KVC620", list(poison_violations(found.poison or [])), source.path),
        _result("KVC628", list(path_violations(found.paths or [])), source.path),
    ]
    place = Target(path=source.path, kind=source.kind, formats=stored_formats(evidence))
    report: Report = judged_report(place, results, rules(), unjudged={})
    return report


def _result(rule: str, broken: Sequence[Violation], file: str) -> RuleResult:
    known = rules()[rule]
    findings = [
        finding_of(one, file, name=known.name, severity=known.severity, confidence=Confidence.PROVEN) for one in broken
    ]
    return RuleResult.of(rule, findings)
