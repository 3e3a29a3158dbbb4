"""What the guards cost: the same steps of two engines, one guarded and one not, taking turns step by step.

    python benchmarks/guards_cost.py [--model FOLDER] [--batches 1,8,32] [--decode 128]

Both engines hold the same model and decode the same prompts of 512 random ids, so that whatever else the machine does hits
both alike. `tpot` is the median step; `cost` the sum of guarded steps over the sum of the others, less one, each sum
without its slowest tenth.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from serve_speed import PREFILL, THREADS, prompts


def steps(engine: Any, count: int) -> Any:
    """Seconds of each step."""
    for _ in range(count):
        start = time.perf_counter()
        engine.step()
        yield time.perf_counter() - start


def without_slowest(seconds: list[float]) -> float:
    """Sum of nine tenths."""
    return sum(sorted(seconds)[: len(seconds) * 9 // 10])


def measured(target: str, batch: int, decode: int) -> dict[str, Any]:
    """One row."""
    import torch

    from degarble.evidence import Evidence, Settings
    from degarble.target import open_target
    from degarble_engine.engine.llm_engine import EngineOptions
    from degarble_engine.engine.sampling_params import SamplingParams
    from degarble_engine.guards.choice import chosen_actions
    from degarble_engine.guards.install import install
    from degarble_engine.server.guarding import BASELINE_TEXT
    from degarble_engine.server.served_model import open_served

    torch.set_num_threads(THREADS)
    blocks = batch * ((PREFILL + decode) // 16 + 2) + 64
    engines = []
    for is_guarded in (False, True):
        options = EngineOptions(num_gpu_blocks=blocks, enable_prefix_caching=False)
        served = open_served(Evidence(open_target(target), Settings()), "model", options=options)
        if is_guarded:
            actions = chosen_actions()
            ids = served.prompter.encode(BASELINE_TEXT, adds_special=True)
            install(served.engine, actions, tokenizer=served.tokenizer, baseline_ids=ids)
        params = SamplingParams(temperature=0.0, max_tokens=decode + 1, ignore_eos=True)
        requests = [served.engine.add(ids, params) for ids in prompts(batch)]
        while any(request.num_outputs == 0 for request in requests):
            served.engine.step()
        engines.append(served.engine)
    plain, guarded = ([], [])
    for off, on in zip(steps(engines[0], decode - 1), steps(engines[1], decode - 1), strict=True):
        plain.append(off)
        guarded.append(on)
    return {
        "batch": batch,
        "tpot_ms": round(1e3 * statistics.median(plain), 2),
        "tpot_guarded_ms": round(1e3 * statistics.median(guarded), 2),
        "cost_percent": round(100 * (without_slowest(guarded) / without_slowest(plain) - 1), 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=".work/real/bf16")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--decode", type=int, default=128)
    given = parser.parse_args()
    rows = [measured(given.model, int(batch), given.decode) for batch in given.batches.split(",")]
    print(json.dumps(rows))
