"""The golden model of two layers under guards, and requests run to their ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.request import Request
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.engine.trip import Trip
from degarble_engine.guards.choice import chosen_actions
from degarble_engine.guards.install import install
from degarble_engine.guards.rail import GuardRail
from degarble_engine.models.causal_lm import CausalLM
from tests.degarble_engine.server.served import fresh_model, opened

TEXT = list(range(40, 104))
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


@contextmanager
def guarded(
    *settings: str,
    reference: CausalLM | None = None,
    has_text: bool = True,
    num_known: int | None = None,
    **options: Any,
) -> Iterator[tuple[LLMEngine, GuardRail]]:
    """An engine of its own on the shared weights; `settings` as `--guard` takes them, all others at their default.

    `num_known`: the tokenizer ends there, before the model does.
    """
    engine = fresh_model(**options).engine
    tokenizer = opened().tokenizer if has_text else None
    if tokenizer is not None and num_known is not None:
        short = msgspec.structs.replace(tokenizer.table, pieces=tokenizer.table.pieces[:num_known])
        tokenizer = replace(tokenizer, build_table=lambda: short)
    rail = install(
        engine, chosen_actions(settings), tokenizer=tokenizer, baseline_ids=TEXT, reference=reference
    )  # fmt: skip
    try:
        yield engine, rail
    finally:
        if rail.surroundings.tap is not None:
            rail.surroundings.tap.remove()


def run(
    engine: LLMEngine, params: SamplingParams = GREEDY, prompts: Sequence[Sequence[int]] = ([5, 6, 7, 8, 9],)
) -> list[Request]:
    """All of them, to their ends; afterwards nothing is held."""
    found = list(engine.generate(prompts, params))
    engine.manager.check_integrity()
    assert engine.manager.pool.num_free == engine.options.num_gpu_blocks - 1
    return found


def only(request: Request, guard: str) -> Trip:
    """The first trip of one guard."""
    return next(trip for trip in request.trips if trip.guard == guard)
