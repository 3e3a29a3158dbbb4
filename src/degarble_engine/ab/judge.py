"""lm-eval's tasks on both sides, sample by sample, so that their scores are compared as pairs.

`--judge lm-eval:arc_easy,gsm8k` runs tasks that lm-eval knows (it fetches their data), `--judge-tasks DIR` tasks of a
folder of its YAML files, whose data may lie beside them. Code of a task runs only if lm-eval is told to elsewhere:
nothing here allows it.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from degarble.errors import TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.ab.metric import Metric, mean_of
from degarble_engine.engine.llm_engine import EngineOptions
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.models.plain_cache import PlainCache
from degarble_engine.server.served_model import ServedModel, open_served

PREFIX = "lm-eval:"
MAX_NEW_TOKENS = 256


def read_judge(option: str) -> list[str]:
    """Names of tasks. Raises UsageError."""
    tasks = [one.strip() for one in option.removeprefix(PREFIX).split(",") if one.strip()]
    if not option.startswith(PREFIX) or not tasks:
        raise UsageError(f"--judge {option[:60]!r}: expected lm-eval:TASK[,TASK…]")
    return tasks


def judged(tasks: Sequence[str], folder: str | None, sides: Sequence[str], seed: int) -> list[Metric]:
    """One metric for each score that a task gives each sample. Raises UsageError and TargetError."""
    try:
        library = importlib.import_module("lm_eval")
        managers = importlib.import_module("lm_eval.tasks")
    except ModuleNotFoundError as error:
        raise UsageError(f"--judge: needs lm-eval ({error.name} is missing): pip install 'degarble[eval]'") from None
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"--judge-tasks {folder}: no folder")
    manager = managers.TaskManager(include_path=folder)
    unknown = [task for task in tasks if task not in manager.all_tasks]
    if unknown:
        raise UsageError(f"--judge: lm-eval has no task {unknown[0][:60]!r}; one of your own needs --judge-tasks DIR")
    found = [_results(library, manager, tasks, side, seed) for side in sides]
    return [metric for task in sorted(found[0]["samples"]) for metric in _metrics(task, found)]


def _results(library: Any, manager: Any, tasks: Sequence[str], side: str, seed: int) -> Mapping[str, Any]:
    served = open_served(Evidence(open_target(side), Settings()), side, options=EngineOptions(num_gpu_blocks=2048))
    seeds = {f"{name}_random_seed": seed for name in ("numpy", "torch", "fewshot")}
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    try:
        found = library.simple_evaluate(
            model=_adapter(served), tasks=list(tasks), task_manager=manager, log_samples=True, bootstrap_iters=0,
            random_seed=seed, verbosity="ERROR", **seeds,
        )  # fmt: skip
    except Exception as error:  # tasks raise anything
        raise TargetError(f"lm-eval on {side}: {type(error).__name__}: {error}") from None
    assert isinstance(found, Mapping)
    return found


def _metrics(task: str, found: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """Scores that are one number a sample; samples are paired by their place in the data."""
    by_place = [{sample["doc_id"]: sample for sample in one["samples"].get(task, ())} for one in found]
    places = sorted(set(by_place[0]) & set(by_place[1]))
    if not places:
        return []
    names = [name for name in by_place[0][places[0]].get("metrics", ()) if _is_number(by_place[0][places[0]].get(name))]
    directions = found[0].get("higher_is_better", {}).get(task, {})
    made = []
    for name in names:
        sums = [np.array([[float(side[place][name]), 1.0] for place in places]) for side in by_place]
        is_lower = directions.get(name) is False
        made.append(Metric(name=f"{task}/{name}", is_lower_better=is_lower, sums=(sums[0], sums[1]), statistic=mean_of))
    return made


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float))


def _adapter(served: ServedModel) -> Any:
    """The engine as a model of lm-eval."""
    base = importlib.import_module("lm_eval.api.model").TemplateLM

    class EngineLM(base):  # type: ignore[misc, valid-type]
        """See lm_eval.api.model.TemplateLM."""

        @property
        def eot_token_id(self) -> int:
            return served.engine.eos_ids[0] if served.engine.eos_ids else 0

        def tok_encode(self, string: str, **options: Any) -> list[int]:
            return list(served.prompter.encode(string, adds_special=bool(options.get("add_special_tokens", False))))

        def _loglikelihood_tokens(self, requests: Any, **options: Any) -> list[tuple[float, bool]]:
            return [_continued(served, list(start), list(end)) for _, start, end in requests]

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
            ids = [self.tok_encode(request.args[0]) for request in requests]
            return [_continued(served, [self.eot_token_id], own)[0] for own in ids]

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [_answer(served, self.tok_encode(text), options) for text, options in (one.args for one in requests)]

    return EngineLM()


@torch.inference_mode()
def _continued(served: ServedModel, start: list[int], end: list[int]) -> tuple[float, bool]:
    """(log-likelihood of `end` behind `start`, whether it is what greedy decoding would say)."""
    model, ids = served.engine.model, (start + end)[:-1]
    cache = PlainCache().begin([("judge", len(ids))])
    hidden = model.hidden(torch.tensor(ids), torch.arange(len(ids)), cache)
    logprobs = model.logits(hidden[-len(end) :]).float().log_softmax(-1)
    labels = torch.tensor(end)
    chosen = logprobs.gather(1, labels[:, None])[:, 0]
    return float(chosen.sum()), bool((logprobs.argmax(1) == labels).all())


def _answer(served: ServedModel, ids: list[int], options: Mapping[str, Any]) -> str:
    stops = tuple(options.get("until") or ())
    params = SamplingParams(
        temperature=float(options.get("temperature") or 0.0) if options.get("do_sample") else 0.0,
        max_tokens=int(options.get("max_gen_toks") or MAX_NEW_TOKENS),
        seed=0,
    )
    most = served.engine.max_model_len - params.max_tokens
    request = next(iter(served.engine.generate([ids[-most:]], params)))
    text = served.hiding.decode(one.token_id for one in request.outputs)
    cuts = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return text[: min(cuts)] if cuts else text
