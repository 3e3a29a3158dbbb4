"""The whole comparison: what is measured of both sides, how sure it is, and the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from degarble.errors import EvidenceMissing, TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.report.interface import Report
from degarble.target import open_target
from degarble_engine.ab import metric as metrics
from degarble_engine.ab.answers import Answers, answers
from degarble_engine.ab.bootstrap import Interval, paired
from degarble_engine.ab.judge import judged, read_judge
from degarble_engine.ab.likelihood import scores
from degarble_engine.ab.metric import ANSWERED, METRICS, OF_REFERENCE, SCORED, CannotMeasure, Metric
from degarble_engine.ab.prompt import Prompt
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.walked_report import target_of

KIND = "ab"
SIDES = ("a", "b")
BETTER, WORSE, UNTOLD, SAME = "better", "worse", "cannot tell", "identical"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    prompts: tuple[Prompt, ...]
    reference: str | None = None
    """The model that KL and top-1 are taken to."""
    metrics: tuple[str, ...] = ()
    """Empty: all that the inputs allow."""
    max_tokens: int = 64
    """Of an answer; 0: no answers."""
    max_length: int = 512
    """Tokens of a prompt."""
    temperature: float = 0.0
    draws: int = 2000
    seed: int = 0
    judge: str | None = None
    """`lm-eval:TASK,…`"""
    judge_tasks: str | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown:
            raise UsageError(f"--metric {unknown[0][:40]!r}: {', '.join(METRICS)}")
        for name in self.metrics:
            if name in OF_REFERENCE and self.reference is None:
                raise UsageError(f"--metric {name}: needs --reference: the model that both sides are to equal")
            if name in ANSWERED and not self.max_tokens:
                raise UsageError(f"--metric {name}: needs answers: give --max-tokens")


def ab(first: str, second: str, question: Question, progress: Watch | None = None) -> Report:
    """Compare two checkpoints. Raises UsageError and TargetError."""
    return _Comparison(first, second, question, progress).run()


@dataclass(slots=True)
class _Comparison:
    """One question."""

    first: str
    second: str
    question: Question
    progress: Watch | None
    left_out: dict[str, str] = field(default_factory=dict)
    cost: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self) -> Report:
        second = WalkedModel.open(self.second)
        target = target_of(second)
        rows = [self._row(one) for one in (*self._scored(second), *self._answered(), *self._judged())]
        if not rows:
            raise TargetError("nothing could be measured: " + "; ".join(sorted(set(self.left_out.values()))))
        question = self.question
        table: dict[str, Any] = {
            "kind": KIND,
            "a": self.first,
            "b": self.second,
            "reference": question.reference,
            "prompts": len(question.prompts),
            "draws": question.draws,
            "seed": question.seed,
            "metrics": rows,
            "cost": self.cost,
            "verdict": whole_verdict(rows),
            "left_out": self.left_out,
        }
        unjudged = {name: self.left_out[name] for name in question.metrics if name in self.left_out}
        return Report(target=target, unjudged=unjudged, comparison=table)

    def _wants(self, name: str) -> bool:
        return not self.question.metrics or name in self.question.metrics

    def _leave_out(self, names: Sequence[str], reason: str) -> None:
        self.left_out |= {name: reason for name in names if self._wants(name)}

    def _scored(self, second: WalkedModel) -> list[Metric]:
        question = self.question
        names = [name for name in SCORED if self._wants(name)]
        if question.reference is None:
            self._leave_out(OF_REFERENCE, "no --reference was given")
            names = [name for name in names if name not in OF_REFERENCE]
        if not names:
            return []
        sides = [WalkedModel.open(self.first), second]
        reference = WalkedModel.open(question.reference) if question.reference is not None else None
        try:
            found = scores(question.prompts, sides, reference, question.max_length, self.progress)
        except EvidenceMissing as missing:
            self._leave_out(names, str(missing))
            return []
        return [metrics.scored(name, found) for name in names]

    def _answered(self) -> list[Metric]:
        names = [name for name in ANSWERED if self._wants(name)]
        if not self.question.max_tokens:
            self._leave_out(names, "--max-tokens 0: no answers")
            return []
        sides: list[Answers] = []
        for name, target in zip(SIDES, (self.first, self.second), strict=True):
            try:
                sides.append(self._answers(target))
            except TargetError as error:
                self._leave_out(names, str(error))
                return []
            self.cost[name] = _cost(sides[-1])
        found = []
        for name in names:
            try:
                found.append(metrics.answered(name, self.question.prompts, sides))
            except CannotMeasure as error:
                self._leave_out([name], str(error))
        return found

    def _judged(self) -> list[Metric]:
        question = self.question
        if question.judge is None:
            return []
        return judged(read_judge(question.judge), question.judge_tasks, (self.first, self.second), question.seed)

    def _answers(self, target: str) -> Answers:
        question = self.question
        return answers(
            Evidence(open_target(target), Settings()),
            question.prompts,
            max_tokens=question.max_tokens,
            temperature=question.temperature,
            seed=question.seed,
            max_prompt_tokens=question.max_length,
            progress=self.progress,
        )

    def _row(self, metric: Metric) -> dict[str, Any]:
        first, second = metric.sums
        interval = paired(first, second, metric.statistic, draws=self.question.draws, seed=self.question.seed)
        values = [float(metric.statistic(sums.sum(0)[None])[0]) for sums in metric.sums]
        is_same = bool(np.array_equal(first, second))
        return {
            "metric": metric.name,
            "better": "lower" if metric.is_lower_better else "higher",
            "a": values[0],
            "b": values[1],
            "difference": interval.difference,
            "low": interval.low if math.isfinite(interval.low) else None,
            "high": interval.high if math.isfinite(interval.high) else None,
            "prompts": interval.num_prompts,
            "verdict": SAME if is_same else _verdict(interval, metric.is_lower_better),
            "prompts_that_would_tell": None if is_same or interval.is_told else interval.prompts_that_would_tell,
        }


def _verdict(interval: Interval, is_lower_better: bool) -> str:
    """Of B."""
    if not interval.is_told:
        return UNTOLD
    return BETTER if (interval.high < 0) == is_lower_better else WORSE


def whole_verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Of B over all metrics: worse if any is, better if one is and none is worse."""
    found = {row["verdict"] for row in rows}
    return next((one for one in (WORSE, BETTER, UNTOLD) if one in found), SAME)


def _cost(side: Answers) -> dict[str, Any]:
    return {
        "tokens": side.tokens,
        "tokens_per_second": side.tokens_per_second,
        "weight_bytes": side.weight_bytes,
        "cache_bytes": side.cache_bytes,
    }
