"""vLLM's own block manager under the stress test, where vllm is installed; a clear word where it is not."""

from __future__ import annotations

import importlib.util

import pytest

from degarble.errors import UsageError
from degarble.kvcache.stress import stress
from degarble.kvcache.stress_memory import Setting
from degarble_engine.engine.vllm_allocator import make

HAS_VLLM = importlib.util.find_spec("vllm") is not None


@pytest.mark.skipif(HAS_VLLM, reason="vllm is installed")
def test_without_vllm_it_says_so() -> None:
    with pytest.raises(UsageError, match="vllm's block manager cannot be imported"):
        make(8, 16)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_VLLM, reason="vllm is not installed")
def test_lives_of_vllms_block_manager() -> None:
    setting = Setting(num_blocks=40)
    result = stress(lambda one: make(one.num_blocks, one.block_size), setting, seeds=range(6), num_operations=400)
    assert result.breach is None and result.num_operations > 500, result
