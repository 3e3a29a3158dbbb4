"""Each guard's fault in a running engine: seen within its bound, acted on as asked, and nothing else is touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from degarble.errors import UsageError
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.request import FinishReason
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.engine.trip import TripKind
from degarble_engine.guards.activation_collapse import NUM_MEASURES
from degarble_engine.guards.block_tap import EVERY
from degarble_engine.guards.choice import chosen_actions, guard_types
from degarble_engine.guards.interface import Action
from degarble_engine.guards.rail import CORRUPTED
from tests.degarble_engine.guards.guarded import GREEDY, guarded, only, run
from tests.degarble_engine.server.served import fresh_model, opened

Change = Callable[[Tensor, int], Tensor]


def alter_logits(engine: LLMEngine, change: Change, *, first: int = 0, last: int = 1 << 30) -> None:
    """Change the logits of every row in steps [first, last)."""
    true_run, calls = engine.runner.run, 0

    def altered(parts: Sequence[Any]) -> list[Tensor]:
        nonlocal calls
        number, calls = calls, calls + 1
        found = true_run(parts)
        return [change(own, number) for own in found] if first <= number < last else found

    engine.runner.run = altered  # type: ignore[method-assign]


def constant_token(token_id: int, height: float = 30.0) -> Change:
    def change(logits: Tensor, _: int) -> Tensor:
        raised = torch.zeros_like(logits)
        raised[:, token_id] = height
        return raised

    return change


def nan_row(logits: Tensor, _: int) -> Tensor:
    broken = logits.clone()
    broken[:, 7] = math.nan
    return broken


def test_healthy_answers_are_the_same_with_guards_and_trip_nothing() -> None:
    plain = run(fresh_model().engine, prompts=([5, 6, 7], list(range(20, 50))))
    with guarded() as (engine, rail):
        watched = run(engine, prompts=([5, 6, 7], list(range(20, 50))))
        assert [one.outputs for one in watched] == [one.outputs for one in plain]
        assert not rail.watched and not any(trip.kind is TripKind.DAMAGE for one in watched for trip in one.trips)
        assert list(rail.silent) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_end_an_answer_before_a_token_is_chosen(value: float) -> None:
    def broken(logits: Tensor, _: int) -> Tensor:
        return logits.index_fill(1, torch.tensor([7]), value)

    with guarded() as (engine, rail):
        alter_logits(engine, broken, first=3)
        (request,) = run(engine)
    assert (request.finish_reason, request.stop_reason) == (FinishReason.ERROR, "guard:non-finite-logits")
    assert request.num_outputs == only(request, "non-finite-logits").num_outputs == 3
    assert rail.counts["non-finite-logits", "damage"] == rail.counts["non-finite-logits", "stopped"] == 1


def test_a_poisoned_cache_ends_its_own_request_only_and_is_found_by_nobody() -> None:
    prompt, other = list(range(10, 40)), list(range(100, 130))
    (alone,) = run(fresh_model().engine, prompts=[other])
    with guarded() as (engine, rail):
        first, second = engine.add(prompt, GREEDY), engine.add(other, GREEDY)
        for _ in range(3):
            engine.step()
        block = engine.manager.sequence(first.request_id).block_table[2]
        for view in engine.cache._every_view():
            view[block] = math.nan
        while engine.has_work:
            engine.step()
        assert first.finish_reason is FinishReason.ERROR
        assert second.finish_reason is FinishReason.LENGTH and second.outputs == alone.outputs
        assert all(bool(view.isfinite().all()) for view in engine.cache._every_view())
        assert not rail.quarantine.blocks and rail.quarantine.num_scrubbed >= 8
        (again,) = run(engine, prompts=[prompt])
        assert again.num_cached == 0 and again.finish_reason is FinishReason.LENGTH


def test_a_shared_block_waits_for_its_last_holder() -> None:
    prompt = list(range(10, 40))
    with guarded("non-finite-logits=stop") as (engine, rail):
        holder = engine.add(prompt, GREEDY)
        for _ in range(2):
            engine.step()
        rail.quarantine.admit(engine.manager.sequence(holder.request_id).block_table[:2])
        assert len(rail.quarantine.blocks) >= 2
        sharer = engine.add(prompt, GREEDY)
        engine.step()
        assert sharer.num_cached == 0 and rail.quarantine.blocks
        while engine.has_work:
            engine.step()
        assert not rail.quarantine.blocks
        engine.manager.check_integrity()


def test_a_transient_fault_is_mended_by_the_reference_and_the_answer_is_the_healthy_one() -> None:
    (healthy,) = run(fresh_model().engine)
    with guarded("non-finite-logits=retry", reference=opened().engine.model) as (engine, rail):
        alter_logits(engine, nan_row, first=4, last=5)
        (request,) = run(engine)
    assert request.outputs == healthy.outputs and request.finish_reason is FinishReason.LENGTH
    assert rail.counts["non-finite-logits", "retried"] == 1 and request.num_preemptions == 1
    assert "decoded again" in only(request, "non-finite-logits").message


@pytest.mark.parametrize("tokens", [3, 4, 5, 6])
def test_what_a_mended_answer_leaves_behind_is_sound(tokens: int) -> None:
    """Rows turn to NaN just before a block is full and published, or before the answer ends."""
    prompt = list(range(30, 43))
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=5)
    (healthy,) = run(fresh_model().engine, params, prompts=[prompt])
    with guarded("non-finite-logits=retry", "activation-collapse=off", reference=opened().engine.model) as (
        engine,
        rail,
    ):
        request = engine.add(prompt, params)
        while engine.has_work:
            if request.num_outputs == tokens - 1 and not rail.counts["", CORRUPTED] and request.is_open:
                for views in engine.cache.views.values():
                    views[0][engine.manager.sequence(request.request_id).block_table[1]] = math.nan
            engine.step()
        assert rail.counts["non-finite-logits", "retried"] == 1
        assert [one.token_id for one in request.outputs] == [one.token_id for one in healthy.outputs]
        assert all(bool(view.isfinite().all()) for views in engine.cache.views.values() for view in views)
        longer = [*prompt, *(one.token_id for one in healthy.outputs)]
        (again,) = run(engine, params, prompts=[longer])
    (alone,) = run(fresh_model(enable_prefix_caching=False).engine, params, prompts=[longer])
    assert again.outputs == alone.outputs and not again.trips


def test_damage_that_comes_back_after_a_retry_ends_the_answer() -> None:
    with guarded("non-finite-logits=retry", reference=opened().engine.model) as (engine, rail):
        alter_logits(engine, nan_row, first=4)
        (request,) = run(engine)
    assert request.finish_reason is FinishReason.ERROR and request.num_outputs == 5
    assert rail.counts["non-finite-logits", "retried"] == rail.counts["non-finite-logits", "stopped"] == 1


def test_a_block_that_collapses_is_named_within_its_measures() -> None:
    layer = opened().engine.model.layers[1]
    true_block, factor = layer._feed_forward, 1.0
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    layer._feed_forward = lambda hidden: true_block(hidden) * factor  # below the tap, as a fault of weights would be
    try:
        with guarded() as (engine, _):
            request = engine.add([5, 6, 7, 8, 9], params)
            while engine.has_work:
                factor = 0.08 if request.num_outputs >= 3 else 1.0
                engine.step()
    finally:
        layer._feed_forward = true_block
    trip = only(request, "activation-collapse")
    assert trip.kind is TripKind.DAMAGE and "model.layers.1.mlp" in trip.message
    assert 3 < trip.num_outputs <= 3 + NUM_MEASURES * EVERY
    assert trip.measured["share"] < trip.bound["share"]


def test_a_loop_without_certainty_is_damage_and_one_with_certainty_is_the_models_own() -> None:
    word = next(at for at in range(300) if (opened().tokenizer.table.bytes_of(at) or b"").strip().isalpha()
                and len((opened().tokenizer.table.bytes_of(at) or b"").strip()) > 1)  # fmt: skip

    def lively(entropy: float) -> Change:
        """One token always first, the rest of the distribution as wide as asked, and a little different each time."""

        def change(logits: Tensor, number: int) -> Tensor:
            found = torch.full_like(logits, -30.0)
            width = 40 + number % 9
            found[:, 1 : 1 + width] = entropy
            found[:, word] = 6.0
            return found

        return change

    params = SamplingParams(temperature=0.0, max_tokens=100, ignore_eos=True)
    with guarded("entropy-drift=off", "control-tokens=off") as (engine, rail):
        alter_logits(engine, lively(5.5))
        (damaged,) = run(engine, params)
        assert damaged.finish_reason is FinishReason.CONTENT_FILTER and damaged.num_outputs == 64
        assert only(damaged, "repetition-loop").kind is TripKind.DAMAGE
    with guarded("entropy-drift=off", "control-tokens=off") as (engine, rail):
        alter_logits(engine, lively(-3.0))
        (own,) = run(engine, params)
        assert own.finish_reason is FinishReason.LENGTH and own.num_outputs == 100
        assert only(own, "repetition-loop").kind is TripKind.OWN
        assert rail.counts["repetition-loop", "damage"] == 0 and rail.counts["repetition-loop", "own"] == 1


@pytest.mark.parametrize(
    ("change", "most", "word"),
    [
        (lambda logits, number: torch.zeros_like(logits), 16, "the same at every token"),
        (lambda logits, number: torch.randn(logits.shape, generator=torch.Generator().manual_seed(number)), 32, "nats over"),
        (lambda logits, number: logits * 1e4, 32, "nats over"),
    ],
    ids=["frozen", "exploded", "vanished"],
)  # fmt: skip
def test_a_distribution_that_says_nothing_is_seen_within_its_window(change: Change, most: int, word: str) -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=60, ignore_eos=True)
    with guarded() as (engine, _):
        alter_logits(engine, change)
        (request,) = run(engine, params)
    trip = only(request, "entropy-drift")
    assert trip.num_outputs <= most and word in trip.message
    assert request.finish_reason is FinishReason.CONTENT_FILTER


def test_noise_that_was_asked_for_is_not_judged() -> None:
    params = SamplingParams(temperature=2.0, seed=3, max_tokens=40, ignore_eos=True)
    with guarded() as (engine, _):
        alter_logits(engine, lambda logits, _: torch.zeros_like(logits))
        (request,) = run(engine, params)
    assert not [trip for trip in request.trips if trip.guard == "entropy-drift"]


def token_trips(token_id: int, *settings: str, params: SamplingParams = GREEDY) -> Any:
    with guarded("entropy-drift=off", "repetition-loop=off", *settings) as (engine, _):
        alter_logits(engine, constant_token(token_id))
        return run(engine, params)[0]


def test_control_tokens_ends_nobody_knows_and_ids_without_a_string() -> None:
    tokenizer = opened().tokenizer
    ends = set(opened().engine.eos_ids)
    with guarded() as (_, rail):
        around = rail.surroundings
    control = min(around.special_ids - ends - around.end_like_ids)
    request = token_trips(control)
    kinds = [(trip.kind, trip.num_outputs) for trip in request.trips if trip.guard == "control-tokens"]
    assert kinds == [(TripKind.SUSPECT, 1), (TripKind.DAMAGE, 4)]
    assert tokenizer.table.bytes_of(control) is not None
    for end in around.end_like_ids - ends:
        assert only(token_trips(end), "missing-end").num_outputs == 1


def test_broken_characters_are_seen_and_whole_ones_are_not() -> None:
    table = opened().tokenizer.table
    half = next(at for at in range(len(table.pieces)) if table.bytes_of(at) == b"\xe4")
    request = token_trips(half, params=SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True))
    trip = only(request, "mojibake")
    assert trip.kind is TripKind.DAMAGE and trip.num_outputs == 16
    letter = next(at for at in range(60, 300) if (table.bytes_of(at) or b"").isalpha())
    assert not [trip for trip in token_trips(letter).trips if trip.guard == "mojibake"]


def test_a_guard_without_what_it_needs_says_so() -> None:
    with guarded(has_text=False) as (_, rail):
        assert {"mojibake", "ids-without-string", "control-tokens"} <= set(rail.silent)


def test_actions() -> None:
    assert set(chosen_actions()) == set(guard_types()) and chosen_actions()["non-finite-logits"] is Action.STOP
    assert set(chosen_actions(is_off=True).values()) == {Action.OFF}
    assert chosen_actions(["mojibake=stop"], is_off=True)["mojibake"] is Action.STOP
    for wrong in ("nothing=log", "mojibake", "mojibake=shout", "mojibake=retry"):
        with pytest.raises(UsageError):
            chosen_actions([wrong])


def test_every_guard_says_what_it_sees_and_how_soon() -> None:
    for name, guard in guard_types().items():
        assert guard.name == name and guard.bound and guard.__doc__ and len(guard.__doc__) > 40
