"""What our own engine's cache does to a model's answers, as records that KVC620 and KVC628 judge.

poison    a prompt is prefilled, then every row that nobody may read (tails of blocks, free blocks, the trash block) is
          filled with NaN or 1e4; the logits of the steps that follow must be the same bits as without
paths     the same tokens are written once by prefill in one piece and once one by one, as decoding does: the rows of
          every layer must be the same bits. Where results may depend on the batch (`--no-batch-invariant`), codes
          of the two differ by rounding and are not compared
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from degarble.kvcache.declaration import KVDeclaration, PoisonRecord, WritePath
from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.engine.request import Request
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.engine.scheduler import Scheduled
from degarble_engine.engine.supervisor import Supervisor
from degarble_engine.models.causal_lm import CausalLM

FILLS = {"NaN": math.nan, "1e4": 1e4}
NUM_STEPS, MAX_TOKENS = 3, 44
"""Tokens decoded beside the poison; tokens of the prompt that are used."""


def self_check(model: CausalLM, token_ids: Sequence[int], *, block_size: int = 16) -> KVDeclaration:
    """Run the engine on some tokens of text, several times. At least two tokens are needed; raises UsageError."""
    prompt = list(token_ids[:MAX_TOKENS])
    if len(prompt) % block_size == 0:
        prompt = prompt[:-1]  # a full last block has no tail
    clean = _decoded(model, prompt, block_size, None)
    poison = []
    for name, fill in FILLS.items():
        found = _decoded(model, prompt, block_size, fill)
        gap = max(float((mine - theirs).abs().max()) for mine, theirs in zip(found, clean, strict=True))
        poison.append(
            PoisonRecord(
                fill=name,
                num_tokens=len(prompt),
                block_size=block_size,
                max_abs_difference=gap if math.isfinite(gap) else None,
                where="tail, free blocks and trash block",
            )
        )
    return KVDeclaration(block_size=block_size, poison=poison, paths=_paths(model, prompt, block_size))


def _engine(model: CausalLM, block_size: int, num_tokens: int, most_tokens: int) -> LLMEngine:
    blocks = 2 * (num_tokens + NUM_STEPS + 2) // block_size + 4
    return LLMEngine(
        model,
        EngineOptions(
            block_size=block_size,
            num_gpu_blocks=blocks,
            max_num_batched_tokens=most_tokens,
            enable_prefix_caching=False,
        ),
    )


def _started(engine: LLMEngine, prompt: list[int]) -> Request:
    """The prompt is computed and one token sampled."""
    params = SamplingParams(temperature=0.0, max_tokens=NUM_STEPS + 1, ignore_eos=True)
    request = engine.add(prompt, params)
    while not request.outputs:
        engine.step()
    return request


def _decoded(model: CausalLM, prompt: list[int], block_size: int, fill: float | None) -> list[Tensor]:
    """Logits of the steps after the prompt; with a fill, the rows nobody may read are poisoned before each."""
    engine = _engine(model, block_size, len(prompt), len(prompt))
    request = _started(engine, prompt)
    engine.supervisor = keeper = _LogitKeeper()
    for _ in range(NUM_STEPS):
        if fill is not None:
            sequence = engine.manager.sequence(request.request_id)
            engine.cache.fill_unused(sequence.slots(0, sequence.num_computed), fill)
        engine.step()
    return keeper.kept


class _LogitKeeper(Supervisor):
    """Keeps what tokens are chosen from."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def see_logits(self, parts: Sequence[Scheduled], logits: list[Tensor]) -> None:
        """See Supervisor."""
        self.kept += logits


def _paths(model: CausalLM, prompt: list[int], block_size: int) -> list[WritePath]:
    """Prefill in one piece beside one token a step, which is the path of decoding."""
    found = []
    for path, most in (("prefill", len(prompt)), ("decode", 1)):
        engine = _engine(model, block_size, len(prompt), most)
        request = _started(engine, prompt)
        sequence = engine.manager.sequence(request.request_id)
        slots = engine.cache.index(sequence.slots(0, len(prompt)))
        for layer in range(len(model.layers)):
            for part, rows in engine.cache.gather(layer, slots).items():
                found.append(WritePath(path=path, layer=layer, part=part, codes=_digest(rows)))
    return found


def _digest(rows: Tensor) -> str:
    return hashlib.sha256(rows.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
