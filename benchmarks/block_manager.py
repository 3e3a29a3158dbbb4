"""Cost of the block manager's calls beside its plain twin, and the bandwidth of a gather beside the counted efficiency.

    python benchmarks/block_manager.py

The workload is prefill in chunks of 512 and decode token by token of requests that share prefixes. The twin copies
lists and shares nothing: it shows what bookkeeping costs, not what an engine would do.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from degarble.kvcache.bandwidth import Access, traffic
from degarble.kvcache.block_manager import BlockManager
from degarble.kvcache.byte_allocator import ByteAllocator
from degarble.kvcache.gather import gather
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import find_layout
from degarble.kvcache.reference import ReferenceCache

NUM_REQUESTS = 64
CHUNK = 512
DECODE = 128


def prompts() -> list[list[int]]:
    """Half of them share their first 1024 tokens."""
    rng = random.Random(0)
    shared = [rng.randrange(50_000) for _ in range(1024)]
    return [
        (shared if at % 2 else []) + [rng.randrange(50_000) for _ in range(rng.randrange(50, 1500))]
        for at in range(NUM_REQUESTS)
    ]


def drive(cache: BlockManager | ReferenceCache) -> int:
    """Prefill and decode, with at most 32 requests alive; the number of calls."""
    calls = 0
    for at, ids in enumerate(prompts()):
        name = f"r{at}"
        left = len(ids) - (cache.open(name, ids) or 0)  # the twin caches no prefixes
        while left:
            count = min(CHUNK, left)
            cache.schedule(name, count)
            left -= count
            cache.complete(name, [] if left else [7])
            calls += 2
        for _ in range(DECODE):
            cache.schedule(name, 1)
            cache.complete(name, [7])
        calls += 1 + 2 * DECODE
        if at >= 32:
            cache.finish(f"r{at - 32}")
            calls += 1
    return calls


def managed(block_size: int, is_prefix_cached: bool) -> int:
    """Through the manager."""
    return drive(BlockManager(20_000 * 16 // block_size, block_size, is_prefix_cached=is_prefix_cached))


def twin() -> int:
    """The same calls on plain lists."""
    return drive(ReferenceCache())


def rate(work: Callable[[], int]) -> str:
    """Median of three runs, in calls per second."""
    rates = []
    for _ in range(3):
        start = time.process_time()
        calls = work()
        rates.append(calls / (time.process_time() - start))
    return f"{statistics.median(rates):>10,.0f} calls/s   ({1e6 / statistics.median(rates):.2f} µs a call)"


def gather_rates(block_size: int, num_tokens: int) -> None:
    """Read one head of a sequence in scattered blocks: useful bytes per second by layout, and the counted efficiency."""
    size = Geometry(num_blocks=2048, block_size=block_size, num_kv_heads=8, head_dim=128)
    for name in ("NHD", "HND", "head-major"):
        layout = find_layout(name)
        counted = traffic(layout, size, 2, Access(num_tokens=num_tokens, is_whole_block=True)).efficiency
        measured = gather(layout, size, 2, num_tokens)
        print(
            f"  {name:<11} block {block_size:>3}, {num_tokens} tokens: {measured.gigabytes_a_second:.2f} GB/s useful; whole "
            f"blocks would use {counted:.1%} of what they fetch"
        )


def rounding(requested: int, is_tail_reused: bool) -> str:
    """Of 1000 random moments, how often a write of the rounded size damaged somebody and how often a canary saw it."""
    rng = random.Random(requested)
    damaged = seen = 0
    for _ in range(1000):
        allocator = ByteAllocator(1 << 17, is_tail_reused=is_tail_reused)
        one = allocator.allocate("kv", requested)
        for at in range(rng.randrange(8)):
            allocator.allocate(f"later{at}", rng.choice([256, 512, 1024, 3072, 6144]))
        before = {name: allocator.view(name).copy() for name in allocator.live if name != "kv"}
        allocator.memory[one.offset : one.offset + allocator.rounded(requested)] = 7
        damaged += any((allocator.view(name) != old).any() for name, old in before.items())
        seen += bool(allocator.crossings())
    return f"damage {damaged / 10:.1f} %, canary {seen / 10:.1f} %"


def main() -> None:
    """All tables."""
    print("allocator, processor time")
    for block_size in (16, 128):
        for is_prefix_cached in (True, False):
            what = "with" if is_prefix_cached else "without"
            result = rate(lambda size=block_size, cached=is_prefix_cached: managed(size, cached))  # type: ignore[misc]
            print(f"  manager, block {block_size:>3}, {what:<7} prefix cache {result}")
    print(f"  twin (dict of lists)                       {rate(twin)}")
    print("gather of one head, numpy on one core")
    for block_size, num_tokens in ((16, 4096), (16, 25), (128, 4096)):
        gather_rates(block_size, num_tokens)
    print("a caller that writes the rounded size, 1000 random moments")
    for requested in (3072, 6144):
        for is_tail_reused in (True, False):
            what = "tails reused" if is_tail_reused else "canaries    "
            print(f"  {requested} bytes, {what}: {rounding(requested, is_tail_reused)}")


if __name__ == "__main__":
    main()
