"""The pages of one live request of our own engine, as a file that `kv compare-dump --model` reads."""

from __future__ import annotations

from pathlib import Path

import torch

from degarble.kvcache.sequence import Sequence
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.live_cache.request_file import write_request


def export_request(engine: LLMEngine, request_id: str, path: Path) -> None:
    """Write what the cache holds of a request's computed tokens. Only between steps; raises BlockMisuse for an unknown one."""
    sequence: Sequence = engine.manager.sequence(request_id)
    count = sequence.num_computed
    table = [int(block) for block in sequence.block_table[: sequence.num_columns(count)]]
    table[: sequence.num_evicted] = [-1] * sequence.num_evicted
    blocks = sorted({block for block in table if block >= 0})
    index = torch.tensor(blocks)
    pages = {
        f"layers.{layer}.{name}": view[index]
        for name, views in engine.cache.views.items()
        for layer, view in enumerate(views)
    }
    write_request(
        path,
        token_ids=sequence.token_ids[:count],
        block_table=table,
        block_ids=blocks,
        position_ids=list(range(count)),
        pages=pages,
        layout="MLA" if engine.cache.is_latent else "NHD",
    )
