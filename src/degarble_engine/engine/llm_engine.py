"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
import torch
from torch import Tensor

from degarble.errors import UsageError
from degarble.kvcache.block_manager import BlockManager
from degarble.kvcache.block_state import Observer
from degarble.kvcache.layout import find_layout
from degarble.kvcache.namespace import PLAIN, Namespace
from degarble_engine.engine.guide import Guide
from degarble_engine.engine.model_runner import ModelRunner
from degarble_engine.engine.pool import PagedKVCache
from degarble_engine.engine.request import FinishReason, Request
from degarble_engine.engine.sampler import Sampled, sample
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.engine.scheduler import Drafter, Scheduled, Scheduler
from degarble_engine.engine.supervisor import Supervisor
from degarble_engine.models.causal_lm import CausalLM


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and choices, under vLLM's names where they mean the same."""

    block_size: int = 16
    num_gpu_blocks: int = 512
    """Blocks of the pool, wherever it lies."""
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 1024
    max_model_len: int | None = None
    """None: what the config says."""
    enable_prefix_caching: bool = True
    is_batch_invariant: bool = True
    checks_integrity: bool = False
    """Prove the whole state of the block manager after each step."""


class StepOutput(msgspec.Struct, frozen=True):
    """New tokens of one request."""

    request: Request
    new: tuple[Sampled, ...]


class LLMEngine:
    """Not safe for threads: one loop owns it."""

    def __init__(
        self,
        model: CausalLM,
        options: EngineOptions | None = None,
        *,
        eos_ids: Sequence[int] = (),
        drafter: Drafter | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.options = options or EngineOptions()
        self.model, self.eos_ids = model, tuple(eos_ids)
        geometry = model.geometry(self.options.num_gpu_blocks, self.options.block_size)
        self.manager = BlockManager(
            self.options.num_gpu_blocks,
            self.options.block_size,
            is_prefix_cached=self.options.enable_prefix_caching,
            trash_block=0,
            observer=observer,
        )
        layout = find_layout("MLA" if geometry.latent else "NHD")
        self.cache = PagedKVCache(layout, geometry, dtype=model.cache_dtype, device=str(model.device))
        self.scheduler = Scheduler(
            self.manager,
            max_num_seqs=self.options.max_num_seqs,
            max_num_batched_tokens=self.options.max_num_batched_tokens,
            drafter=drafter,
        )
        self.runner = ModelRunner(model, self.cache, self.manager, is_batch_invariant=self.options.is_batch_invariant)
        self.supervisor = Supervisor()
        self.requests: dict[str, Request] = {}
        self.num_steps = 0
        self._numbers = count(1)

    @property
    def max_model_len(self) -> int:
        """Most tokens of a request, prompt and output."""
        own = int(getattr(self.model.config, "max_position_embeddings", 0) or self.scheduler.capacity)
        return min(own, self.options.max_model_len or own, self.scheduler.capacity)

    def add(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        namespace: Namespace = PLAIN,
        guide: Guide | None = None,
    ) -> Request:
        """Queue a request. Raises UsageError for ids outside the vocabulary, or more tokens than can be held."""
        if not prompt_ids or not all(0 <= one < self.model.vocab_size for one in prompt_ids):
            raise UsageError(f"the prompt must be token ids from 0 to {self.model.vocab_size - 1}, at least one")
        if len(prompt_ids) >= self.max_model_len:
            raise UsageError(f"the prompt has {len(prompt_ids)} tokens, the model takes {self.max_model_len} in all")
        room = self.max_model_len - len(prompt_ids)
        if params.max_tokens > room:
            params = msgspec.structs.replace(params, max_tokens=room, min_tokens=min(params.min_tokens, room))
        name = request_id or f"req-{next(self._numbers)}"
        if name in self.requests:
            raise UsageError(f"request {name!r} is running already")
        request = Request(
            name, prompt_ids, params, eos_ids=self.eos_ids, vocab_size=self.model.vocab_size, namespace=namespace,
            guide=guide,
        )  # fmt: skip
        self.scheduler.add(request)
        self.requests[name] = request
        return request

    def abort(self, request_id: str) -> None:
        """End a request at once; nothing if it has ended. Its blocks are free when this returns."""
        request = self.requests.get(request_id)
        if request is not None:
            request.finish(FinishReason.ABORT)
            self._close(request)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.requests)

    @torch.inference_mode()
    def step(self) -> list[StepOutput]:
        """Compute one step and sample what follows."""
        self.supervisor.begin_step()
        parts = self.scheduler.schedule()
        if not parts:
            return []
        step = self.manager.begin_step([part.work for part in parts])
        try:
            logits = self.runner.run(parts)
        finally:
            self.manager.end_step(step)
        self.supervisor.see_logits(parts, logits)
        outputs = [self._settle(part, own) for part, own in zip(parts, logits, strict=True)]
        self.supervisor.end_step()
        self.num_steps += 1
        if self.options.checks_integrity:
            self.manager.check_integrity()
        return [output for output in outputs if output.new or output.request.finish_reason]

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Iterator[Request]:
        """Run prompts to their ends, in the order in which they are given."""
        requests = [self.add(prompt, params) for prompt in prompts]
        while self.has_work:
            self.step()
        yield from requests

    def _settle(self, part: Scheduled, logits: Tensor) -> StepOutput:
        """Tokens sampled from one part; drafts are kept as far as the model says the same."""
        request = part.request
        if request.finish_reason is not None:  # by the supervisor
            self._close(request)
            return StepOutput(request, ())
        if not part.is_sampled:
            self.manager.complete(request.request_id)
            return StepOutput(request, ())
        sequence = self.manager.sequence(request.request_id)
        drafts = sequence.token_ids[len(sequence.token_ids) - part.num_drafts :] if part.num_drafts else []
        new: list[Sampled] = []
        for place in range(len(drafts) + 1):
            allowed = request.guide.allowed() if request.guide is not None else None
            sampled = sample(
                logits[place], request.params, request.generator, request.counts, request.banned_ids, allowed
            )
            new.append(sampled)
            request.append(sampled)
            self.supervisor.see_token(request, sampled, place)
            if request.finish_reason is not None or place == len(drafts) or sampled.token_id != drafts[place]:
                break
        self.manager.complete(request.request_id, [one.token_id for one in new])
        if request.finish_reason is not None:
            self._close(request)
        return StepOutput(request, tuple(new))

    def _close(self, request: Request) -> None:
        self.supervisor.see_end(request)
        self.scheduler.finish(request)
        self.requests.pop(request.request_id, None)
