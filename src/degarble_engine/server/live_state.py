"""What the engine holds at one moment, read in its own thread between two steps. No text and no token of anybody."""

from __future__ import annotations

from typing import Any

from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.request import Request

MAX_REQUESTS = 200
MAX_BLOCKS = 8192
FREE, CACHED, HELD, SHARED, LEAVING, RESERVED = ".chswx"
"""One letter a block: free; free with a prefix that may be found again; held by one request; by several; free as soon as
the step ends that may still read it; never handed out."""


def live_state(engine: LLMEngine) -> dict[str, Any]:
    """Requests, and the map of blocks. What is left out is counted."""
    pool = engine.manager.pool
    requests = list(engine.requests.values())
    letters = "".join(_letter(engine, block) for block in range(min(pool.num_blocks, MAX_BLOCKS)))
    return {
        "steps": engine.num_steps,
        "requests": [_told(engine, request) for request in requests[:MAX_REQUESTS]],
        "requests_left_out": max(0, len(requests) - MAX_REQUESTS),
        "blocks": {
            "block_size": engine.manager.block_size,
            "total": pool.num_blocks,
            "free": pool.num_free,
            "published": len(engine.manager.prefix_cache),
            "map": letters,
            "left_out": pool.num_blocks - len(letters),
        },
    }


def _letter(engine: LLMEngine, block: int) -> str:
    pool = engine.manager.pool
    if block in pool.reserved:
        return RESERVED
    if pool.ref_count[block]:
        return SHARED if pool.ref_count[block] > 1 else HELD
    if pool.is_busy(block):
        return LEAVING
    return CACHED if engine.manager.prefix_cache.is_published(block) else FREE


def _told(engine: LLMEngine, request: Request) -> dict[str, Any]:
    sequence = engine.manager.sequences.get(request.request_id)
    blocks = [block for block in sequence.block_table if block >= 0] if sequence is not None else []
    return {
        "id": request.request_id,
        "state": "waiting" if sequence is None else str(sequence.phase),
        "prompt_tokens": len(request.prompt_ids),
        "cached_tokens": request.num_cached,
        "output_tokens": request.num_outputs,
        "max_tokens": request.params.max_tokens,
        "preemptions": request.num_preemptions,
        "blocks": [block for block in blocks if block < MAX_BLOCKS],
    }
