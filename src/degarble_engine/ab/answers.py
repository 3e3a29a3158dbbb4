"""What one side says to the prompts, by the reference engine, and what saying it took."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from degarble.errors import UsageError
from degarble.evidence import Evidence
from degarble_engine.ab.prompt import Prompt
from degarble_engine.engine.llm_engine import EngineOptions
from degarble_engine.engine.request import Request
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.numerics.walk import Watch
from degarble_engine.server.served_model import ServedModel, open_served

IN_FLIGHT = 16
BLOCK_SIZE = 16


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """One text a prompt, in the order of the prompts."""

    texts: tuple[str, ...]
    tokens: int
    seconds: float
    weight_bytes: int
    """As they are held."""
    cache_bytes: int
    """K/V of all requests that run at a time."""

    @property
    def tokens_per_second(self) -> float:
        """Of answers, prefill included."""
        return self.tokens / self.seconds if self.seconds else 0.0


def answers(
    evidence: Evidence,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    temperature: float,
    seed: int,
    max_prompt_tokens: int,
    progress: Watch | None = None,
) -> Answers:
    """Raises TargetError for what the engine cannot serve, UsageError for a prompt without a token."""
    room = IN_FLIGHT * ((max_prompt_tokens + max_tokens) // BLOCK_SIZE + 2)
    options = EngineOptions(num_gpu_blocks=room, block_size=BLOCK_SIZE, max_num_seqs=IN_FLIGHT)
    served = open_served(evidence, "side", options=options)
    ids = [_ids(served, prompt, max_prompt_tokens) for prompt in prompts]
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens)
    start = time.perf_counter()
    requests = _run(served, ids, params, seed, progress)
    seconds = time.perf_counter() - start
    return Answers(
        texts=tuple(served.hiding.decode(one.token_id for one in request.outputs) for request in requests),
        tokens=sum(request.num_outputs for request in requests),
        seconds=seconds,
        weight_bytes=sum(served.num_bytes.values()),
        cache_bytes=sum(view.nbytes for views in served.engine.cache.views.values() for view in views),
    )


def _ids(served: ServedModel, prompt: Prompt, most: int) -> list[int]:
    """The last `most` tokens: an answer follows the end of a prompt."""
    if prompt.messages:
        found = served.prompter.encode_chat([dict(one) for one in prompt.messages], None, {})
    else:
        found = served.prompter.encode(prompt.text, adds_special=True)
    if not found:
        raise UsageError(f"--prompts: line {prompt.number}: gives no token")
    return list(found)[-most:]


def _run(
    served: ServedModel, ids: Sequence[Sequence[int]], params: SamplingParams, seed: int, progress: Watch | None
) -> list[Request]:
    """All prompts, some at a time; the n-th draws from seed + n, whatever runs beside it."""
    engine, requests = served.engine, []
    waiting = iter(enumerate(ids))
    running: list[Request] = []
    while True:
        for number, own in waiting:
            one = engine.add(own, msgspec.structs.replace(params, seed=seed + number), request_id=f"prompt-{number}")
            requests.append(one)
            running.append(one)
            if len(running) == IN_FLIGHT:
                break
        if not running:
            return requests
        engine.step()
        running = [one for one in running if one.finish_reason is None]
        if progress is not None:
            progress(len(requests) - len(running), len(ids))
