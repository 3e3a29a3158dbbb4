"""The metrics: what is summed over prompts, what is made of the sums, and which way is better.

    kl          mean over positions of KL(reference || side), nats                       lower is better
    ppl         exp of the mean of -log p(next token)                                    lower
    top1        share of positions with the reference's first choice                     higher
    bleu        BLEU-4 of the answers, by sacrebleu                                      higher
    chrf        chrF2 of the answers, by sacrebleu                                       higher
    exact       share of answers that equal a good one, but for white space at the ends  higher
    pass-rate   share of answers that contain the prompt's pattern, or are JSON          higher

BLEU and chrF are of the corpus, so what is summed are each answer's counts of n-grams, as sacrebleu extracts them.
Papers: BLEU Papineni et al. 2002; chrF Popovic 2015; sacrebleu Post 2018.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import UsageError
from degarble_engine.ab.answers import Answers
from degarble_engine.ab.bootstrap import Statistic
from degarble_engine.ab.likelihood import Scores
from degarble_engine.ab.prompt import MAX_ANSWER, Prompt

SCORED, ANSWERED = ("kl", "ppl", "top1"), ("bleu", "chrf", "exact", "pass-rate")
METRICS = (*SCORED, *ANSWERED)
OF_REFERENCE = ("kl", "top1")


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """Ready for the bootstrap."""

    name: str
    is_lower_better: bool
    sums: tuple[Array, Array]
    """Of each side, [prompts, columns]."""
    statistic: Statistic


class CannotMeasure(Exception):
    """Why a metric cannot be had from these inputs."""


def scored(name: str, scores: Scores) -> Metric:
    """kl, ppl or top1; prompts without a position are left out."""
    values = {"kl": scores.kl, "ppl": scores.nats, "top1": scores.agrees}[name]
    kept = scores.tokens > 0
    sides = [np.stack([values[kept, side], scores.tokens[kept]], 1) for side in (0, 1)]
    statistic = _exp_of_mean if name == "ppl" else mean_of
    return Metric(name=name, is_lower_better=name != "top1", sums=(sides[0], sides[1]), statistic=statistic)


def answered(name: str, prompts: Sequence[Prompt], sides: Sequence[Answers]) -> Metric:
    """bleu, chrf, exact or pass-rate, over the prompts that say what they expect. Raises CannotMeasure."""
    if name == "pass-rate":
        at = [number for number, prompt in enumerate(prompts) if prompt.pattern is not None or prompt.must_be_json]
        wanted = "`pattern` or `json`"
    else:
        at, wanted = [number for number, prompt in enumerate(prompts) if prompt.references], "`reference`"
    if not at:
        raise CannotMeasure(f"no prompt has {wanted}")
    asked = [prompts[number] for number in at]
    texts = [[side.texts[number] for number in at] for side in sides]
    if name in ("bleu", "chrf"):
        made = _of_corpus(name, asked, texts)
    else:
        judge = _passes if name == "pass-rate" else _equals
        sums = [np.array([[float(judge(*pair)), 1.0] for pair in zip(asked, own, strict=True)]) for own in texts]
        made = (sums[0], sums[1]), mean_of
    return Metric(name=name, is_lower_better=False, sums=made[0], statistic=made[1])


def mean_of(sums: Array) -> Array:
    """Of [draws, (sum, count)]."""
    return np.asarray(sums[:, 0] / np.maximum(sums[:, 1], 1))


def _exp_of_mean(sums: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(mean_of(sums)))


def _equals(prompt: Prompt, answer: str) -> bool:
    return answer.strip() in {one.strip() for one in prompt.references}


def _passes(prompt: Prompt, answer: str) -> bool:
    if prompt.must_be_json and not _is_json(answer):
        return False
    return prompt.pattern is None or re.search(prompt.pattern, answer[:MAX_ANSWER]) is not None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _of_corpus(
    name: str, prompts: Sequence[Prompt], texts: Sequence[Sequence[str]]
) -> tuple[tuple[Array, Array], Statistic]:
    judge = _sacrebleu(name)
    most = max(len(prompt.references) for prompt in prompts)
    # sacrebleu takes references column by column, and None where a prompt has fewer
    columns = [
        [prompt.references[column] if column < len(prompt.references) else None for prompt in prompts]
        for column in range(most)
    ]
    sums = [np.array(judge._extract_corpus_statistics(list(own), columns), dtype=np.float64) for own in texts]

    def statistic(rows: Array) -> Array:
        return np.array([judge._compute_score_from_stats([round(one) for one in row]).score for row in rows.tolist()])

    return (sums[0], sums[1]), statistic


def _sacrebleu(name: str) -> Any:
    try:
        metrics = importlib.import_module("sacrebleu.metrics")
    except ModuleNotFoundError:
        raise UsageError(f"--metric {name}: needs sacrebleu: pip install 'degarble[eval]'") from None
    make: Callable[[], Any] = metrics.BLEU if name == "bleu" else metrics.CHRF
    return make()
