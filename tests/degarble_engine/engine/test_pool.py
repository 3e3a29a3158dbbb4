"""K and V written through the paged cache and gathered back equal a plain cache, bit for bit, in every layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from degarble.errors import BlockMisuse, BoundCrossed, GraphHoldsMemory, LayoutMismatch
from degarble.kvcache.block_manager import BlockManager
from degarble.kvcache.contract import validate
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.graph_guard import GraphGuard
from degarble.kvcache.latent_record import find_record
from degarble.kvcache.layout import CATALOGUE, KVLayout, find_layout
from degarble_engine.engine.latent_pack import RECORD_BYTES, pack_latent, unpack_latent
from degarble_engine.engine.pool import PagedKVCache

pytestmark = pytest.mark.engine

LAYERS = 2
LENGTHS = (1, 2, 15, 16, 17, 31, 33, 48, 127, 128, 129, 300)


def cache_of(layout: KVLayout, block_size: int, *, num_blocks: int = 0, **options: Any) -> PagedKVCache:
    size = Geometry(
        num_blocks=num_blocks or -(-320 // block_size) + 3,
        block_size=block_size,
        num_kv_heads=2,
        head_dim=8,
        latent=20,
        num_layers=LAYERS,
        x=4,
    )
    return PagedKVCache(layout, size, **options)


def rows_for(cache: PagedKVCache, num_tokens: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Random rows for each layer: the plain cache."""
    torch.manual_seed(seed)
    shape = (num_tokens, 20) if cache.is_latent else (num_tokens, 2, 8)
    return [{name: torch.randn(shape) for name in cache.views} for _ in range(LAYERS)]


def assert_equal(cache: PagedKVCache, slots: list[int], rows: list[dict[str, torch.Tensor]], count: int) -> None:
    for layer in range(LAYERS):
        for name, found in cache.gather(layer, slots).items():
            assert torch.equal(found, rows[layer][name][:count]), (cache.layout.name, layer, name)


@pytest.mark.parametrize("block_size", [1, 16, 24, 128])
@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_gathered_is_written(layout: KVLayout, block_size: int) -> None:
    """Blocks in a shuffled order, a chunked prefill, then one more token."""
    for length in LENGTHS:
        cache = cache_of(layout, block_size)
        manager = BlockManager(cache.geometry.num_blocks, block_size, trash_block=0)
        manager.open("first", [1] * min(block_size, 5))
        manager.schedule("first", 1)
        manager.open("r", list(range(length + 1)))
        rows = rows_for(cache, length + 1)
        for start in range(0, length + 1, 100):
            work = manager.schedule("r", min(100, length + 1 - start))
            for layer in range(LAYERS):
                cache.write(layer, {k: v[work.start : work.end] for k, v in rows[layer].items()}, work.slots)
            manager.complete("r")
        manager.check_integrity()
        assert_equal(cache, manager.sequence("r").slots(0, length + 1), rows, length + 1)


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [1, 16, 24, 128])
@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_gathered_is_written_for_every_length(layout: KVLayout, block_size: int) -> None:
    """Lengths 1 to 300, one sequence that grows."""
    cache = cache_of(layout, block_size)
    manager = BlockManager(cache.geometry.num_blocks, block_size)
    manager.open("r", list(range(300)))
    rows = rows_for(cache, 300)
    for length in range(1, 301):
        work = manager.schedule("r", 1)
        for layer in range(LAYERS):
            cache.write(layer, {k: v[work.start : work.end] for k, v in rows[layer].items()}, work.slots)
        manager.complete("r")
        assert_equal(cache, manager.sequence("r").slots(0, length), rows, length)


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_padded_pages_stay_untouched(layout: KVLayout) -> None:
    plain = layout.atom_strides(cache_of(layout, 16).geometry)["num_blocks"]
    cache = cache_of(layout, 16, page_stride=plain + 12)
    rows = rows_for(cache, cache.num_slots)
    for layer in range(LAYERS):
        cache.write(layer, rows[layer], list(range(cache.num_slots)))
    cache.check_padding()
    assert_equal(cache, list(range(cache.num_slots)), rows, cache.num_slots)
    cache.storages[0][plain] = 1.0
    with pytest.raises(BoundCrossed, match=f"element {plain} lies between pages"):
        cache.check_padding()


def test_k_and_v_in_different_layouts() -> None:
    cache = cache_of(find_layout("legacy-k"), 16, v_layout=find_layout("legacy-v"))
    rows = rows_for(cache, 40)
    for layer in range(LAYERS):
        cache.write(layer, rows[layer], list(range(40)))
    assert_equal(cache, list(range(40)), rows, 40)
    assert cache.views["k"][0].shape != cache.views["v"][0].shape


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_fork_copies_what_it_must(layout: KVLayout) -> None:
    cache = cache_of(layout, 16)
    manager = BlockManager(cache.geometry.num_blocks, 16)
    rows, other = rows_for(cache, 22), rows_for(cache, 22, seed=1)
    manager.open("a", list(range(20)))
    first = manager.schedule("a", 20)
    for layer in range(LAYERS):
        cache.write(layer, {k: v[:20] for k, v in rows[layer].items()}, first.slots)
    manager.complete("a", [7])
    manager.fork("a", "b")
    for name, source in (("b", other), ("a", rows)):
        work = manager.schedule(name, 1)
        cache.copy_blocks(work.copies)
        for layer in range(LAYERS):
            cache.write(layer, {k: v[20:21] for k, v in source[layer].items()}, work.slots)
        manager.complete(name)
        manager.check_integrity()
    joined = [{k: torch.cat([v[:20], other[at][k][20:21]]) for k, v in one.items()} for at, one in enumerate(rows)]
    assert_equal(cache, manager.sequence("a").slots(0, 21), rows, 21)
    assert_equal(cache, manager.sequence("b").slots(0, 21), joined, 21)
    assert manager.sequence("a").block_table[0] == manager.sequence("b").block_table[0]


def test_swap_to_a_host_of_another_layout() -> None:
    device, host = cache_of(find_layout("NHD"), 16), cache_of(find_layout("HND-kv-first"), 16, num_blocks=30)
    manager = BlockManager(device.geometry.num_blocks, 16, num_host_blocks=30)
    manager.open("a", list(range(40)))
    rows = rows_for(device, 40)
    work = manager.schedule("a", 40)
    for layer in range(LAYERS):
        device.write(layer, rows[layer], work.slots)
    manager.complete("a")
    device.to_host(manager.preempt("a", to_host=True), host)
    for view in device._every_view():
        view.fill_(float("nan"))
    host.to_host(manager.resume("a"), device)
    assert_equal(device, manager.sequence("a").slots(0, 40), rows, 40)


def test_poison_stays_out_of_what_is_read() -> None:
    cache = cache_of(find_layout("HND"), 16)
    rows = rows_for(cache, 20)
    slots = [*range(32, 48), *range(4)]
    for layer in range(LAYERS):
        cache.write(layer, rows[layer], slots)
    cache.fill_unused(slots, float("nan"))
    assert_equal(cache, slots, rows, 20)
    assert torch.isnan(cache.gather(0, [4])["k"]).all()


def test_no_index_from_the_end_or_past_it() -> None:
    cache = cache_of(find_layout("NHD"), 16)
    for slots in ([-1], [cache.num_slots], [0, -1]):
        with pytest.raises(BlockMisuse, match="in a pool of"):
            cache.gather(0, slots)
    with pytest.raises(BlockMisuse, match=r"rows of shape \[1, 2, 8\], expected \[2, 2, 8\]"):
        cache.write(0, rows_for(cache, 1)[0], [0, 1])
    assert cache.gather(0, [])["k"].shape == (0, 2, 8)


def test_a_contract_is_judged_before_anything_is_written() -> None:
    with pytest.raises(LayoutMismatch, match="a page needs 256 elements"):
        cache_of(find_layout("NHD"), 16, page_stride=200)
    layout = find_layout("NHD-block-first")
    big = Geometry(num_blocks=2**17, block_size=16, num_kv_heads=8, head_dim=128)
    on_paper = torch.empty(layout.shape(big), dtype=torch.float16, device="meta")
    with pytest.raises(LayoutMismatch, match="KVC619: block 65536 is the first whose index passes 2"):
        validate(layout, big, on_paper, index_bits=32)
    validate(layout, big, on_paper)


def test_a_graph_leases_the_storages() -> None:
    cache = cache_of(find_layout("NHD"), 16)
    guard = GraphGuard()
    guard.capture("decode", cache.buffers())
    name, buffer = next(iter(cache.buffers().items()))
    with pytest.raises(GraphHoldsMemory, match=name):
        guard.check_reuse(buffer.address + 8, 4)
    guard.check_replay("decode", cache.buffers())
    with pytest.raises(GraphHoldsMemory, match="was captured as"):
        guard.check_replay("decode", cache_of(find_layout("NHD"), 16).buffers())


def test_deepseek_record() -> None:
    """656 bytes; the latent is within half a step of e4m3, the rotated key is exact in bfloat16."""
    record = find_record("latent-fp8-656")
    assert record is not None and record.nbytes == RECORD_BYTES == 656
    assert (record.offset_of("scales"), record.offset_of("rope")) == (512, 528)
    torch.manual_seed(0)
    latent, rope = torch.randn(33, 512) * torch.logspace(-3, 3, 33).unsqueeze(1), torch.randn(33, 64).bfloat16()
    packed = pack_latent(latent, rope)
    assert packed.shape == (33, 656) and packed.dtype == torch.uint8
    again, rope_again = unpack_latent(packed)
    assert torch.equal(rope_again, rope)
    tiles = latent.reshape(33, 4, 128)
    error = (again.reshape(33, 4, 128) - tiles).abs()
    scale = packed[:, 512:528].contiguous().view(torch.float32).unsqueeze(-1)
    assert torch.equal(torch.exp2(torch.log2(scale).round()), scale)
    assert bool((error <= tiles.abs() * 2**-4 + scale * 2**-10).all())
    assert torch.equal(unpack_latent(pack_latent(again, rope_again))[0], again)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_a_captured_graph_writes_captured_addresses() -> None:
    """The same guard over a real capture: replay writes the slots buffer's present content, at its old address."""
    cache = cache_of(find_layout("NHD"), 16, device="cuda")
    view = cache.views["k"][0]
    flat = view.as_strided((cache.num_slots, 2, 8), (16, 8, 1))
    rows = torch.ones(4, 2, 8, device="cuda")
    slots = torch.tensor([17, 18, 19, 0], device="cuda")
    graph = torch.cuda.CUDAGraph()
    flat.index_copy_(0, slots, rows)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        flat.index_copy_(0, slots, rows)
    guard = GraphGuard(trash_slots=[0])
    guard.capture("decode4", cache.buffers(), num_rows=4)
    flat.zero_()
    slots.copy_(torch.tensor([33, 34, 0, 0], device="cuda"))
    guard.check_replay("decode4", cache.buffers(), num_real=2, slots=slots.tolist())
    graph.replay()
    torch.cuda.synchronize()
    written = flat[:, 0, 0].nonzero().flatten().tolist()
    assert written == [0, 33, 34]
    with pytest.raises(GraphHoldsMemory):
        guard.check_reuse(cache.storages[0].data_ptr(), 1)
