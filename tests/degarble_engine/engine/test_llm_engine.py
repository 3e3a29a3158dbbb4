"""The engine on small random models: what a request gets depends on nothing but itself, and no block is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM

from degarble.errors import UsageError
from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.engine.ngram import NgramDrafter
from degarble_engine.engine.request import FinishReason, Request
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.models.causal_lm import CausalLM
from degarble_engine.models.load import open_model
from tests.degarble_engine.tiny_models import folder

FAMILIES = ("llama", "mistral", "qwen3-moe", "deepseek-v3")
CHANGES = {"mistral": {"sliding_window": 6}}


@cache
def model_of(family: str) -> CausalLM:
    return open_model(str(folder(family, **CHANGES.get(family, {}))))


def engine_of(family: str, **options: object) -> LLMEngine:
    sizes = {"block_size": 4, "num_gpu_blocks": 200, "max_num_batched_tokens": 64, "checks_integrity": True}
    return LLMEngine(model_of(family), EngineOptions(**{**sizes, **options}))  # type: ignore[arg-type]


def prompts(count: int, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(320) for _ in range(rng.randrange(3, 30))] for _ in range(count)]


def ids_of(requests: Sequence[Request]) -> list[list[int]]:
    return [[one.token_id for one in request.outputs] for request in requests]


GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)


def alone(family: str, prompt: list[int], params: SamplingParams = GREEDY) -> list[int]:
    engine = engine_of(family, enable_prefix_caching=False, max_num_batched_tokens=512)
    return ids_of(list(engine.generate([prompt], params)))[0]


@cache
def greedy_alone(family: str) -> list[list[int]]:
    return [alone(family, prompt) for prompt in prompts(7)]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_transformers(family: str) -> None:
    prompt = prompts(1)[0]
    reference = AutoModelForCausalLM.from_pretrained(folder(family, **CHANGES.get(family, {}))).eval()
    wanted = reference.generate(
        torch.tensor([prompt]), max_new_tokens=10, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, len(prompt) :].tolist()
    assert alone(family, prompt) == wanted


@pytest.mark.parametrize("family", ["mistral", "deepseek-v3"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_num_batched_tokens": 7},
        {"num_gpu_blocks": 20, "max_num_batched_tokens": 40},
        {"is_batch_invariant": False},
    ],
    ids=["one batch", "chunks of 7", "preemption", "library attention"],
)
def test_a_batch_gives_every_request_its_own_tokens(family: str, options: dict[str, object]) -> None:
    engine = engine_of(family, **options)
    found = ids_of(list(engine.generate(prompts(7), GREEDY)))
    assert found == greedy_alone(family)
    assert (engine.scheduler.num_preemptions > 0) == (options.get("num_gpu_blocks") == 20)
    assert engine.manager.pool.num_free == engine.options.num_gpu_blocks - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_same_bits_alone_and_in_company(family: str) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=5)
    batch = prompts(5, seed=3)
    single = []
    for one in batch:
        (request,) = engine_of(family, max_num_batched_tokens=512).generate([one], params)
        single.append(request.outputs)
    engine = engine_of(family, max_num_batched_tokens=9)
    together = [request.outputs for request in engine.generate(batch, params)]
    again = [request.outputs for request in engine.generate(batch, params)]  # from the prefix cache
    assert together == single
    assert again == single


def test_a_prefix_is_taken_from_the_cache() -> None:
    engine = engine_of("llama")
    prompt = prompts(1, seed=5)[0] + list(range(20))
    (first,) = engine.generate([prompt], GREEDY)
    (second,) = engine.generate([prompt], GREEDY)
    assert (first.num_cached, second.num_cached) == (0, (len(prompt) - 1) // 4 * 4)
    assert ids_of([first]) == ids_of([second])


def test_drafts_change_speed_and_nothing_else() -> None:
    loop = [5, 6, 7, 8] * 6
    plain = alone("llama", loop, SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))
    engine = LLMEngine(
        model_of("llama"), EngineOptions(block_size=4, checks_integrity=True), drafter=NgramDrafter(num_drafts=3)
    )
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    assert ids_of(list(engine.generate([loop], params))) == [plain]
    assert engine.num_steps < 61  # the walk of a small random model repeats itself sooner or later


def test_a_seed_decides_what_is_drawn() -> None:
    params = SamplingParams(temperature=1.0, top_p=0.9, top_k=50, max_tokens=12, ignore_eos=True, seed=11)
    batch = prompts(4, seed=8)
    engine = engine_of("llama")
    assert ids_of(list(engine.generate(batch, params))) == [alone("llama", prompt, params) for prompt in batch]
    other = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True, seed=12)
    assert alone("llama", batch[0], other) != alone("llama", batch[0], params)


def test_an_end_token_ends_a_request_and_min_tokens_keeps_it_away() -> None:
    prompt = prompts(1)[0]
    usual = alone("llama", prompt)
    params = SamplingParams(temperature=0.0, max_tokens=12, stop_token_ids=(usual[3],))
    (request,) = engine_of("llama").generate([prompt], params)
    assert ids_of([request]) == [usual[: usual.index(usual[3]) + 1]]
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, usual[3])
    kept = SamplingParams(temperature=0.0, max_tokens=12, min_tokens=8, stop_token_ids=(usual[3],))
    (request,) = engine_of("llama").generate([prompt], kept)
    assert usual[3] not in ids_of([request])[0][:8]


def test_an_abort_gives_every_block_back_at_once() -> None:
    engine = engine_of("llama", enable_prefix_caching=False)
    rng = random.Random(0)
    for prompt in prompts(12):
        engine.add(prompt, SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True))
    while engine.has_work:
        engine.step()
        if rng.random() < 0.5 and engine.requests:
            engine.abort(rng.choice(list(engine.requests)))
    engine.manager.check_integrity()
    assert engine.manager.pool.num_free == 199
    assert not engine.manager.sequences


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], {}, "at least one"),
        ([320], {}, "token ids from 0 to 319"),
        ([1] * 300, {}, "the model takes 256 in all"),
    ],
)
def test_what_cannot_run_is_refused(prompt: list[int], params: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        engine_of("llama").add(prompt, SamplingParams(**params))  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"temperature": float("nan")}, {"top_p": 0.0}, {"max_tokens": 0}, {"stop": ("",)}])
def test_parameters_that_mean_nothing_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        SamplingParams(**changes)  # type: ignore[arg-type]
