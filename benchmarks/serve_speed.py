"""Tokens a second of the reference engine beside transformers, llama.cpp and vLLM: the same machine, run and prompts.

    python benchmarks/serve_speed.py [--model FOLDER] [--int4 FOLDER] [--gguf FILE ...] [--batches 1,8,32] [--decode 128]
                                     [--budget SECONDS]
                                     [--ours PYTHON] [--transformers PYTHON] [--llama PYTHON] [--vllm PYTHON]

Every engine runs in a process and an environment of its own; PYTHON is its interpreter (for ours: with the extra `fast`, or
without), and one that is not named is not measured. Engines take turns, in rounds; the best of all rounds counts, as
others may use the machine. Prefill is the time to the first token of all requests, decode what follows. Peers whose prefill
is slow get a prompt from their own cache instead where that is possible: transformers a cache of random rows, llama.cpp
slots that hold the prompt. `roofline`: the time to read weights and K/V once at the bandwidth measured in the same run, as
a share of a step. Every engine has two threads.
Interpreters and GGUF files may also be named by BENCHMARK_OURS_PYTHON, …_TRANSFORMERS_PYTHON, …_LLAMA_PYTHON,
…_VLLM_PYTHON and BENCHMARK_GGUF.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PREFILL, THREADS, ROUNDS = 512, 2, 1
Times = dict[str, float]


def prompts(batch: int, vocab: int = 40_000) -> list[list[int]]:
    """Random ids, the same for every engine."""
    rng = random.Random(batch)
    return [[rng.randrange(100, vocab) for _ in range(PREFILL)] for _ in range(batch)]


def ours(target: str, decode: int, *options: str) -> Iterator[Callable[[int], Times]]:
    """The engine's own loop of steps. Options: `free` for --no-batch-invariant, `packed` for INT4 alone."""
    import torch

    from degarble.evidence import Evidence, Settings
    from degarble.target import open_target
    from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
    from degarble_engine.engine.sampling_params import SamplingParams
    from degarble_engine.models.load import load_as_stored

    torch.set_num_threads(THREADS)
    is_invariant = "free" not in options
    model, store = load_as_stored(
        Evidence(open_target(target), Settings()), torch.bfloat16, is_batch_invariant=is_invariant
    )
    kept = sum(store.num_bytes.values()) - store.num_bytes["tables"]

    def measure(batch: int) -> Times:
        blocks = batch * ((PREFILL + decode) // 16 + 2) + 2
        engine = LLMEngine(
            model, EngineOptions(num_gpu_blocks=blocks, is_batch_invariant=is_invariant, enable_prefix_caching=False)
        )
        params = SamplingParams(temperature=0.0, max_tokens=decode + 1, ignore_eos=True)
        requests = [engine.add(ids, params) for ids in prompts(batch)]
        start = time.perf_counter()
        while any(request.num_outputs == 0 for request in requests):
            engine.step()
        first = time.perf_counter()
        done = sum(request.num_outputs for request in requests)
        while engine.has_work:
            engine.step()
        end = time.perf_counter()
        tokens = sum(request.num_outputs for request in requests) - done
        row_bytes = sum(view[0, 0].numel() for views in engine.cache.views.values() for view in views)
        cache = batch * (PREFILL + decode // 2) * row_bytes * engine.cache.dtype.itemsize
        return {"prefill": batch * PREFILL / (first - start), "decode": tokens / (end - first), "bytes": kept + cache}

    warm = LLMEngine(model, EngineOptions(num_gpu_blocks=8, is_batch_invariant=is_invariant))
    list(warm.generate([list(range(100, 140))] * 2, SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)))
    yield measure


def transformers(target: str, decode: int) -> Iterator[Callable[[int], Times]]:
    """`generate` in bf16, with its usual attention; for more than one request after a cache of random rows."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16).eval()
    config = model.config
    shape = (config.num_key_value_heads, PREFILL - 1, config.hidden_size // config.num_attention_heads)

    def generated(ids: torch.Tensor, count: int, cache: Any = None) -> float:
        start = time.perf_counter()
        settings = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), past_key_values=cache, **settings)
        return time.perf_counter() - start

    def filled(batch: int) -> Any:
        cache = DynamicCache()
        for layer in range(config.num_hidden_layers):
            cache.update(*(torch.randn(batch, *shape, dtype=torch.bfloat16) * 0.1 for _ in "kv"), layer)
        return cache

    def measure(batch: int) -> Times:
        ids = torch.tensor(prompts(batch))
        first = generated(ids, 1) if batch == 1 else None
        start, end = generated(ids, 1, filled(batch)), generated(ids, decode + 1, filled(batch))
        found = {"decode": batch * decode / (end - start)}
        return found if first is None else {**found, "prefill": batch * PREFILL / first}

    yield measure


def llama(target: str, decode: int) -> Iterator[Callable[[int], Times]]:
    """llama.cpp's server inside the process, by the wheel `xllamacpp`; the prompt of the second call is in its slots."""
    import importlib
    import threading

    xllamacpp = importlib.import_module("xllamacpp")

    def opened(batch: int) -> Any:
        params = xllamacpp.CommonParams()
        params.model.path, params.n_parallel, params.verbosity = target, batch, -1
        params.n_ctx = batch * (PREFILL + decode + 64)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
        return xllamacpp.Server(params)

    def called(server: Any, batch: int, count: int) -> float:
        def one(slot: int, ids: list[int]) -> None:
            server.handle_completions(
                {
                    "prompt": ids,
                    "n_predict": count,
                    "temperature": 0,
                    "ignore_eos": True,
                    "cache_prompt": True,
                    "id_slot": slot,
                }
            )

        threads = [threading.Thread(target=one, args=pair) for pair in enumerate(prompts(batch))]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    def measure(batch: int) -> Times:
        server = opened(batch)
        first = called(server, batch, 1)
        return {"prefill": batch * PREFILL / first, "decode": batch * decode / called(server, batch, decode)}

    yield measure


def vllm(target: str, decode: int) -> Iterator[Callable[[int], Times]]:
    """vLLM's CPU build, offline, as it compiles by itself."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    import importlib

    library = importlib.import_module("vllm")
    engine = library.LLM(target, dtype="bfloat16", max_model_len=PREFILL + decode + 32, enable_prefix_caching=False)

    def timed(batch: int, count: int) -> float:
        params = library.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        start = time.perf_counter()
        engine.generate([{"prompt_token_ids": ids} for ids in prompts(batch)], params, use_tqdm=False)
        return time.perf_counter() - start

    def measure(batch: int) -> Times:
        first, end = timed(batch, 1), timed(batch, decode + 1)
        return {"prefill": batch * PREFILL / first, "decode": batch * decode / (end - first)}

    yield measure


def bandwidth(target: str, decode: int) -> Iterator[Callable[[int], Times]]:
    """Bytes a second that both threads read of half a gigabyte; in a process like those that are measured."""
    import torch

    torch.set_num_threads(THREADS)
    data = torch.ones(1 << 27)

    def measure(batch: int) -> Times:
        best = 0.0
        for _ in range(8):
            start = time.perf_counter()
            data.sum()
            best = max(best, data.numel() * 4 / (time.perf_counter() - start))
        return {"speed": best}

    yield measure


WORKERS: dict[str, Callable[..., Iterator[Callable[[int], Times]]]] = {
    "ours": ours, "transformers": transformers, "llama": llama, "vllm": vllm, "bandwidth": bandwidth,
}  # fmt: skip


def work(kind: str, target: str, decode: int, batches: list[int], options: list[str]) -> None:
    """In the engine's own process: one JSON object a batch."""
    for measure in WORKERS[kind](target, decode, *options):
        for batch in batches:
            print(json.dumps({"batch": batch, **measure(batch)}), flush=True)


def run(
    python: str, kind: str, target: str, options: list[str], decode: int, batches: list[int], budget: float
) -> dict[int, Times]:
    """Start a worker; a batch that is missing was not reached within the budget, or its engine failed, which is said."""
    arguments = [kind, target, str(decode), ",".join(map(str, batches)), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    with subprocess.Popen(
        [python, __file__, "--work", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            shown, said = process.communicate(timeout=budget * len(batches))
        except subprocess.TimeoutExpired:
            process.kill()
            shown, said = process.communicate()
            print(f"{kind} {target}: not all within {budget * len(batches):.0f} s", file=sys.stderr)
    if process.returncode:
        print(f"{kind} {target}: {said.strip().splitlines()[-1:]}", file=sys.stderr)
    rows = [json.loads(line) for line in shown.splitlines() if line.startswith('{"batch"')]
    return {row.pop("batch"): row for row in rows}


def measured(
    engines: dict[str, tuple[str, str, str, list[str]]], decode: int, batches: list[int], budget: float
) -> dict[str, Any]:
    """Best of all rounds by engine and batch."""
    best: dict[str, dict[int, Times]] = {name: {} for name in engines}
    for _ in range(ROUNDS):
        for name, (python, kind, target, options) in engines.items():
            print(name, file=sys.stderr, flush=True)
            for batch, times in run(python, kind, target, options, decode, batches, budget).items():
                known = best[name].setdefault(batch, {})
                known.update({key: max(value, known.get(key, 0.0)) for key, value in times.items()})
    return best


def chosen(given: argparse.Namespace) -> dict[str, tuple[str, str, str, list[str]]]:
    """name -> interpreter, kind, target and options, in the order of the table."""
    engines = {
        "ours": (given.ours, "ours", given.model, []),
        "ours, not invariant": (given.ours, "ours", given.model, ["free"]),
    }
    if given.int4:
        engines["ours INT4, not invariant"] = (given.ours, "ours", given.int4, ["free"])
    if given.transformers:
        engines["transformers bf16"] = (given.transformers, "transformers", given.model, [])
    for file in given.gguf if given.llama else ():
        engines[f"llama.cpp {Path(file).stem}"] = (given.llama, "llama", file, [])
    if given.vllm:
        engines["vllm bf16"] = (given.vllm, "vllm", given.model, [])
    return engines


def main() -> None:
    """One row an engine and batch."""
    if sys.argv[1:2] == ["--work"]:
        kind, target, decode, wanted, *options = sys.argv[2:]
        work(kind, target, int(decode), [int(one) for one in wanted.split(",")], options)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=".work/real/bf16")
    parser.add_argument("--int4", default="")
    files = [file for file in os.environ.get("BENCHMARK_GGUF", "").split(os.pathsep) if file]
    parser.add_argument("--gguf", nargs="*", default=files)
    parser.add_argument(
        "--budget", type=float, default=150.0, help="Seconds of an engine a batch; the rest is not measured."
    )
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--ours", default=os.environ.get("BENCHMARK_OURS_PYTHON", sys.executable))
    for peer in ("transformers", "llama", "vllm"):
        parser.add_argument(f"--{peer}", default=os.environ.get(f"BENCHMARK_{peer.upper()}_PYTHON", ""))
    given = parser.parse_args()
    batches = [int(one) for one in given.batches.split(",")]
    best = measured(chosen(given), given.decode, batches, given.budget)
    speed = run(given.ours, "bandwidth", "", [], 0, [0], given.budget)[0]["speed"]
    for batch in batches:
        for name, times in best.items():
            found = times.get(batch, {})
            row: dict[str, Any] = {"engine": name, "batch": batch}
            row |= {f"{key} tokens/s": round(found[key], 1) if key in found else None for key in ("prefill", "decode")}
            share = found["bytes"] / speed / (batch / found["decode"]) if "bytes" in found else None
            print(
                json.dumps(
                    row | {"roofline": None if share is None else round(share, 2), "GB/s": round(speed / 1e9, 1)}
                )
            )


if __name__ == "__main__":
    main()
