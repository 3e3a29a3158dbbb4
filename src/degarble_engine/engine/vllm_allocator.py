"""vLLM's own block manager in the form of the stress test: `kv stress degarble_engine.engine.vllm_allocator:make`.

Opt-in: vllm is imported when an allocator is made, and nothing here installs it. Written against vllm 0.33.0
(`v1/core/kv_cache_manager.py`); its manager publishes blocks when they are allocated, before they are computed, so the
calls of one step must not overlap those of another: there are no `begin_step` and `end_step` here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from degarble.errors import OutOfBlocks, UsageError
from degarble.kvcache.slot_mapping import slot_mapping

MAX_MODEL_TOKENS = 1 << 20


class VllmAllocator:
    """KVCacheManager with one full group."""

    null_block = 0

    def __init__(self, num_blocks: int, block_size: int) -> None:
        try:
            import torch
            from vllm.sampling_params import SamplingParams
            from vllm.utils.hashing import sha256
            from vllm.v1.core.kv_cache_manager import KVCacheManager
            from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
            from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
            from vllm.v1.request import Request
        except ImportError as error:
            raise UsageError(f"vllm's block manager cannot be imported: {error}") from None
        init_none_hash(sha256)
        spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float16)
        config = KVCacheConfig(
            num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        self.manager: Any = KVCacheManager(
            config, max_model_len=MAX_MODEL_TOKENS, scheduler_block_size=block_size, hash_block_size=block_size
        )
        self.block_size = block_size
        self._hasher = get_request_block_hasher(block_size, sha256)
        self._request, self._sampling = Request, SamplingParams(max_tokens=MAX_MODEL_TOKENS)
        self.requests: dict[str, Any] = {}
        self._scheduled: dict[str, tuple[int, int]] = {}
        """Request -> end of what is scheduled, and the drafts in it."""

    def open(self, request: str, token_ids: Sequence[int], namespace: dict[str, Any]) -> int:
        """A new request; its namespace, whatever it is made of, goes into vLLM's salt.

        vLLM takes cached blocks with the first allocation, so the block of one more token is taken here.
        """
        salt = repr(sorted(namespace.items())) if namespace else None
        made = self._request(request, list(token_ids), self._sampling, None, cache_salt=salt, block_hasher=self._hasher)
        blocks, cached, *_ = self.manager.get_computed_blocks(made)
        if self.manager.allocate_slots(made, 1, cached, blocks) is None:
            raise OutOfBlocks(f"vllm has no blocks for {request}")
        made.num_computed_tokens = cached
        self.requests[request] = made
        self._scheduled[request] = (cached, 0)
        return int(cached)

    def schedule(
        self, request: str, num_tokens: int, draft_ids: Sequence[int]
    ) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Slots of the next tokens. vLLM never writes into a shared block, so nothing is copied."""
        one = self.requests[request]
        start = self._scheduled[request][0]
        one.spec_token_ids = list(draft_ids)
        got = self.manager.allocate_slots(one, num_tokens + len(draft_ids))
        if got is None:
            raise OutOfBlocks(f"vllm has no blocks for {request}")
        one.num_computed_tokens = start
        end = start + num_tokens + len(draft_ids)
        self._scheduled[request] = (end, len(draft_ids))
        return slot_mapping(self.block_table(request), start, end, self.block_size), []

    def complete(self, request: str, new_ids: Sequence[int]) -> None:
        """Scheduled tokens are computed; rejected drafts are not."""
        one = self.requests[request]
        end, drafts = self._scheduled[request]
        rejected = drafts + 1 - len(new_ids) if drafts else 0
        one.num_computed_tokens = end - rejected
        one.spec_token_ids = []
        self._scheduled[request] = (end - rejected, 0)
        if new_ids:
            one.append_output_token_ids(list(new_ids))

    def finish(self, request: str) -> None:
        """The request ends."""
        self.manager.free(self.requests.pop(request))
        del self._scheduled[request]

    def block_table(self, request: str) -> list[int]:
        """Blocks in order."""
        return list(self.manager.get_block_ids(request)[0])

    def num_computed(self, request: str) -> int:
        """Rows that are computed."""
        return self._scheduled[request][0]


def make(num_blocks: int, block_size: int) -> VllmAllocator:
    """The function that `kv stress` calls."""
    return VllmAllocator(num_blocks, block_size)
