"""Our block manager, vLLM's own and the plain twin on one workload: calls a second of processor time.

    python benchmarks/allocators.py [--vllm FOLDERS]

The workload is that of block_manager.py. FOLDERS, parted as PYTHONPATH is, hold the Python files of a vllm wheel and what
they import; its manager is plain Python, so nothing of it need be built. vLLM has one call and one attribute where we have
two calls (schedule, complete); both are counted as two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from block_manager import CHUNK, DECODE, managed, prompts, twin

STRUCTURED = "vllm.v1.structured_output"
MAX_TOKENS = 4096


def rate(work: Callable[[], int]) -> float:
    """Median of five runs."""
    rates = []
    for _ in range(5):
        start = time.process_time()
        calls = work()
        rates.append(calls / (time.process_time() - start))
    return statistics.median(rates)


def without_grammars() -> None:
    """vllm's requests import grammar libraries, which a manager never asks."""
    package, module = types.ModuleType(STRUCTURED), types.ModuleType(f"{STRUCTURED}.request")
    package.__path__ = []

    class StructuredOutputRequest:
        """Stands for the real one."""

        @staticmethod
        def from_sampling_params(_: object) -> None:
            """No request of the workload has a grammar."""

    module.__dict__["StructuredOutputRequest"] = StructuredOutputRequest
    sys.modules |= {STRUCTURED: package, f"{STRUCTURED}.request": module}


def vllm_driver() -> tuple[str, Callable[[int, bool], int]]:
    """vLLM's version, and its manager on the workload. Raises ImportError without vllm."""
    without_grammars()
    import torch
    import vllm.version
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request

    init_none_hash(sha256)

    def manager_of(block_size: int, is_prefix_cached: bool) -> Any:
        spec = FullAttentionSpec(block_size=block_size, num_kv_heads=8, head_size=128, dtype=torch.float16)
        groups = [KVCacheGroupSpec(["layer"], spec)]
        config = KVCacheConfig(num_blocks=20_000 * 16 // block_size, kv_cache_tensors=[], kv_cache_groups=groups)
        return KVCacheManager(
            config,
            max_model_len=8192,
            scheduler_block_size=block_size,
            hash_block_size=block_size,
            enable_caching=is_prefix_cached,
        )

    def drive(block_size: int, is_prefix_cached: bool) -> int:
        manager, params = manager_of(block_size, is_prefix_cached), SamplingParams(max_tokens=MAX_TOKENS)
        hasher = get_request_block_hasher(block_size, sha256) if is_prefix_cached else None
        calls, live = 0, {}
        for at, ids in enumerate(prompts()):
            request = live[at] = Request(f"r{at}", list(ids), params, None, block_hasher=hasher)
            blocks, cached, *_ = manager.get_computed_blocks(request)
            done = cached
            while done < len(ids):
                count = min(CHUNK, len(ids) - done)
                is_first = done == cached
                hit = (cached, blocks) if is_first else (0, None)
                assert manager.allocate_slots(request, count, *hit) is not None
                done += count
                request.num_computed_tokens = done
                calls += 2
            request.append_output_token_ids(7)
            for _ in range(DECODE):
                assert manager.allocate_slots(request, 1) is not None
                request.num_computed_tokens += 1
                request.append_output_token_ids(7)
            calls += 1 + 2 * DECODE
            if at >= 32:
                manager.free(live.pop(at - 32))
                calls += 1
        return calls

    return f"vllm {vllm.version.__version__}", drive


def rows(folders: str) -> Iterator[dict[str, Any]]:
    """One line for each block size, with and without prefix cache."""
    sys.path += [folder for folder in folders.split(os.pathsep) if folder]
    try:
        name, peer = vllm_driver()
    except ImportError as error:
        print(f"vllm is not measured: {error}", file=sys.stderr)
        name, peer = "vllm", None  # type: ignore[assignment]
    twins = rate(twin)
    for block_size in (16, 128):
        for is_cached in (True, False):
            ours = rate(lambda size=block_size, cached=is_cached: managed(size, cached))  # type: ignore[misc]
            row: dict[str, Any] = {"block": block_size, "prefix_cache": is_cached, "ours_calls_per_s": round(ours)}
            if peer is not None:
                theirs = rate(lambda size=block_size, cached=is_cached: peer(size, cached))  # type: ignore[misc]
                row |= {f"{name}_calls_per_s": round(theirs), "ratio": round(ours / theirs, 2)}
            yield row | {"twin_calls_per_s": round(twins)}


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", default="", metavar="FOLDERS")
    for row in rows(parser.parse_args().vllm):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
