"""Healthy answers of the real model, numbered: the n-th is always the same prompt, sampling and seed.

    OMP_NUM_THREADS=2 python -m tests.real.healthy --seconds 3600 --out healthy.jsonl

goes on where the file ends, so that the 5,000 answers can be made in as many sittings as one likes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.engine.llm_engine import EngineOptions
from degarble_engine.engine.request import Request
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.guards.choice import chosen_actions
from degarble_engine.guards.install import install
from degarble_engine.guards.rail import GuardRail
from degarble_engine.server.guarding import BASELINE_TEXT
from degarble_engine.server.served_model import ServedModel, open_served
from tests.real.conftest import model_path

TOPICS = (
    "the sea", "a bicycle", "prime numbers", "the French Revolution", "baking bread", "a lost dog", "black holes",
    "Python lists", "the water cycle", "chess openings", "a rainy Monday", "photosynthesis", "the price of tea",
    "sorting algorithms", "a lighthouse keeper", "volcanoes", "learning the violin", "the Roman roads", "honey bees",
    "a broken clock", "electric cars", "the human heart", "a train to Vienna", "binary search trees", "snow",
)  # fmt: skip
TASKS = (
    "Explain {} to a child.", "Write a short story about {}.", "List ten facts about {}.", "Write a poem about {}.",
    "What is the history of {}?", "Write a letter to a friend about {}.", "Write a Python program about {}.",
    "Give me a table with three columns about {}.", "Translate a sentence about {} into French and into Chinese.",
    "Argue for and against {}.", "Write a dialogue of two people about {}.", "Count from 1 to 100, then mention {}.",
    "Write JSON with five records about {}.", "Summarise what you know of {} in one paragraph, then in one line.",
    "Use many emoji in a message about {}.", "Ask me five questions about {}.", "Write a recipe inspired by {}.",
    "{}", "Write a news report about {}.", "Write an outline of a book about {}.",
)  # fmt: skip
SAMPLINGS = (
    {"temperature": 0.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.0, "repetition_penalty": 1.1},
    {"temperature": 1.0},
)  # fmt: skip
MAX_TOKENS = 256
IN_FLIGHT = 32


def guarded() -> tuple[ServedModel, GuardRail]:
    """The real model with all guards annotating, so that no answer is cut short. fp32 runs fast on every machine."""
    served = open_served(
        Evidence(open_target(str(model_path("bf16"))), Settings()),
        "smollm2",
        dtype="fp32",
        options=EngineOptions(num_gpu_blocks=1500, max_num_seqs=IN_FLIGHT, enable_prefix_caching=False),
    )
    names = chosen_actions()
    actions = chosen_actions([f"{name}=annotate" for name in names if name != "precision-fallback"])
    text = served.prompter.encode(BASELINE_TEXT, adds_special=True)
    return served, install(served.engine, actions, tokenizer=served.tokenizer, baseline_ids=text)


def job(served: ServedModel, number: int) -> tuple[list[int], SamplingParams]:
    """The n-th prompt and how it is answered; an end is ignored, so that every answer has 256 tokens."""
    topic, task = TOPICS[number % len(TOPICS)], TASKS[number // len(TOPICS) % len(TASKS)]
    sampling = SAMPLINGS[(number // len(TOPICS) + number) % len(SAMPLINGS)]
    messages = [{"role": "user", "content": task.format(topic)}]
    ids = list(served.prompter.encode_chat(messages, None, {}))
    params = SamplingParams(**sampling, seed=number, max_tokens=MAX_TOKENS, ignore_eos=True)  # type: ignore[arg-type]
    return ids, params


def answers(
    served: ServedModel, numbers: Iterator[int], deadline: float, in_flight: int = IN_FLIGHT
) -> Iterator[Request]:
    """Finished requests, until the clock says so; what then runs is finished."""
    engine = served.engine
    running: list[Request] = []
    while True:
        while len(running) < in_flight and time.monotonic() < deadline:
            number = next(numbers)
            ids, params = job(served, number)
            running.append(engine.add(ids, params, request_id=str(number)))
        if not running:
            return
        engine.step()
        yield from [one for one in running if one.finish_reason is not None]
        running = [one for one in running if one.finish_reason is None]


def record(request: Request) -> dict[str, Any]:
    """One line of the file."""
    return {
        "number": int(request.request_id),
        "sampling": "greedy" if request.params.is_greedy else "sampled",
        "tokens": request.num_outputs,
        "trips": [trip.note for trip in request.trips],
    }


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts by guard and kind, and of answers."""
    trips = Counter(f"{trip['guard']}/{trip['kind']}" for line in lines for trip in line["trips"])
    ways = Counter(line["sampling"] for line in lines)
    return {"answers": len(lines), "tokens": sum(line["tokens"] for line in lines), **ways, "trips": dict(trips)}


def extend(out: Path, seconds: float, in_flight: int = IN_FLIGHT) -> list[dict[str, Any]]:
    """Make further answers for so long, behind those that the file has; returns all."""
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {line["number"] for line in known}
    missing = (number for number in count() if number not in done)
    served, _ = guarded()
    with open(out, "a", encoding="utf-8") as stream:
        for request in answers(served, missing, time.monotonic() + seconds, in_flight):
            known.append(record(request))
            stream.write(json.dumps(known[-1]) + "\n")
            stream.flush()
    return known


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    sys.stdout.write(json.dumps(summary(extend(given.out, given.seconds, given.in_flight)), indent=1) + "\n")
