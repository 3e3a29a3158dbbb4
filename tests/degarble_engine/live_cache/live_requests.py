"""A request half-way through its answer in our engine, as the file that an engineer would have of it."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.live_cache.export import export_request
from degarble_engine.models.load import open_model
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.tiny_models import folder

BLOCK_SIZE = 8


@cache
def live_file(family: str, length: int = 43, seed: int = 5) -> Path:
    """Written once a family; a few more tokens were generated."""
    engine = LLMEngine(
        open_model(str(folder(family))),
        EngineOptions(block_size=BLOCK_SIZE, num_gpu_blocks=64, max_num_batched_tokens=16),
    )
    rng = random.Random(seed)
    neighbour = [rng.randrange(320) for _ in range(9)]
    prompt = [rng.randrange(320) for _ in range(length)]
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    engine.add(neighbour, params)
    request = engine.add(prompt, params)
    while len(request.outputs) < 4:
        engine.step()
    path = Path(mkdtemp()) / "request.safetensors"
    export_request(engine, request.request_id, path)
    return path


@cache
def walked(family: str) -> WalkedModel:
    return WalkedModel.open(str(folder(family)))
