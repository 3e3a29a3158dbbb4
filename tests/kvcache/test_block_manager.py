"""The block manager call by call, with the numbers of the cases in research, and as a state machine against its twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from degarble.errors import BlockMisuse, OutOfBlocks
from degarble.kvcache.allocator import ManagedAllocator
from degarble.kvcache.block_manager import BlockManager
from degarble.kvcache.isolation import Isolation
from degarble.kvcache.namespace import ImageSpan, Namespace
from degarble.kvcache.sequence import Phase
from degarble.kvcache.slot_mapping import num_blocks_for
from degarble.kvcache.stress_memory import Setting
from degarble.kvcache.stress_run import Operation, StressRun


def prefilled(manager: BlockManager, name: str, ids: list[int], namespace: Namespace | None = None) -> int:
    """Open, compute everything, finish the step; how much was cached."""
    cached = manager.open(name, ids, namespace or Namespace())
    work = manager.schedule(name, len(ids) - cached)
    assert (work.start, work.end) == (cached, len(ids))
    manager.complete(name)
    manager.check_integrity()
    return cached


def test_a_full_hit_leaves_one_token() -> None:
    """Prompt of two blocks, cached: 31 of 32 rows are hit; the shared last block is copied before it is written."""
    manager = BlockManager(8, 16)
    ids = list(range(32))
    prefilled(manager, "a", ids)
    assert manager.open("b", ids) == 31
    work = manager.schedule("b", 1)
    (copy,) = work.copies
    assert copy.source == manager.sequence("a").block_table[1] and copy.num_rows == 15
    assert work.slots == [copy.target * 16 + 15]
    manager.complete("b", [5])
    manager.check_integrity()
    assert manager.sequence("b").block_table[0] == manager.sequence("a").block_table[0]


def test_a_full_hit_of_a_finished_request_needs_no_copy() -> None:
    manager = BlockManager(8, 16)
    prefilled(manager, "a", list(range(32)))
    manager.finish("a")
    assert manager.open("b", list(range(32))) == 31
    assert manager.schedule("b", 1).copies == []
    manager.check_integrity()


def test_a_block_that_an_open_step_still_reads_is_copied() -> None:
    """b alone holds the shared block, but a's step has not ended: writing in place would race with it."""
    manager = BlockManager(8, 16)
    prefilled(manager, "a", list(range(32)))
    manager.fork("a", "still reading")
    manager.sequence("still reading").extend([7])
    step = manager.begin_step([manager.schedule("still reading", 1)])
    manager.finish("a")
    assert manager.open("b", list(range(32))) == 31
    manager.finish("still reading")
    (copy,) = manager.schedule("b", 1).copies
    assert copy.num_rows == 15 and copy.target != copy.source
    manager.end_step(step)
    manager.complete("b", [1])
    manager.check_integrity()
    assert not manager.pool.is_busy(copy.source)


def test_a_hit_at_a_block_of_one_row() -> None:
    """block_size 1: the last block is not taken at all, since its only row is to be computed."""
    manager = BlockManager(8, 1)
    prefilled(manager, "a", [1, 2, 3])
    assert manager.open("b", [1, 2, 3]) == 2
    assert len(manager.sequence("b").block_table) == 2


@pytest.mark.parametrize("prefix", [15, 16, 17, 31, 32, 33])
def test_prefixes_at_block_edges(prefix: int) -> None:
    manager = BlockManager(20, 16)
    prefilled(manager, "a", list(range(48)))
    assert manager.open("b", [*range(prefix), 99, 99]) == prefix // 16 * 16


def test_a_b_a() -> None:
    """A's blocks are handed to B; A again must not find them (GeeeekExplorer/nano-vllm#163)."""
    manager = BlockManager(4, 16)
    prefilled(manager, "a", list(range(32)))
    manager.finish("a")
    prefilled(manager, "b", list(range(100, 164)))
    manager.finish("b")
    assert manager.open("a again", list(range(32))) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Namespace(adapter="x"), Namespace(salt="x")),
        (Namespace(adapter="x"), Namespace(adapter="x", adapter_version="2")),
        (Namespace(adapter="x"), Namespace()),
        (Namespace(model="m", dtype="fp8"), Namespace(model="m", dtype="bf16")),
        (
            Namespace(images=(ImageSpan(start=2, length=9, digest="cat"),)),
            Namespace(images=(ImageSpan(start=2, length=9, digest="dog"),)),
        ),
        (Namespace(images=(ImageSpan(start=2, length=9, digest="cat"),)), Namespace()),
    ],
)
def test_namespaces_do_not_share(one: Namespace, other: Namespace) -> None:
    manager = BlockManager(8, 16)
    ids = list(range(40))
    prefilled(manager, "a", ids, one)
    assert manager.open("b", ids, other) == 0
    assert manager.open("c", ids, one) == 32


def test_text_before_an_image_is_shared() -> None:
    manager = BlockManager(12, 16)
    for name, digest, expected in (("a", "cat", 0), ("b", "dog", 32), ("c", "cat", 48)):
        image = Namespace(images=(ImageSpan(start=40, length=4, digest=digest),))
        assert manager.open(name, list(range(50)), image) == expected
        manager.schedule(name, 50 - expected)
        manager.complete(name)
        manager.finish(name)


@pytest.mark.parametrize(("accepted", "kept"), [(0, 11), (2, 13), (4, 15)])
def test_rollback_of_drafts(accepted: int, kept: int) -> None:
    """L0 = 10, k = 4: of 15 rows L0 + a + 1 stay."""
    manager = BlockManager(8, 4)
    manager.open("a", list(range(11)))
    manager.schedule("a", 10)
    manager.complete("a")
    drafts = [50, 51, 52, 53]
    work = manager.schedule("a", 1, drafts)
    assert (work.start, work.end) == (10, 15) and len(manager.sequence("a").block_table) == 4
    manager.complete("a", [*drafts[:accepted], 77])
    sequence = manager.sequence("a")
    assert (sequence.num_computed, len(sequence.token_ids), sequence.token_ids[-1]) == (kept, kept + 1, 77)
    assert len(sequence.block_table) == num_blocks_for(kept, 4)
    manager.check_integrity()


def test_drafts_that_were_not_drafted() -> None:
    manager = BlockManager(8, 4)
    manager.open("a", [1])
    manager.schedule("a", 1, [5, 6])
    for wrong in ([9, 7], [], [5, 6, 7, 8]):
        with pytest.raises(BlockMisuse, match="is no beginning of the drafts"):
            manager.complete("a", wrong)
    with pytest.raises(BlockMisuse, match="drafts are in flight"):
        manager.schedule("a", 1)
    with pytest.raises(BlockMisuse, match="1 tokens completed, 3 are in flight"):
        manager.complete("a", [5, 7], 1)


def test_the_window_evicts_by_computed_tokens() -> None:
    """W 128, blocks of 32: at 158 computed tokens block 0 is still read (position 31), at 159 it is not."""
    manager = BlockManager(8, 32, window=128)
    manager.open("a", list(range(200)))
    manager.schedule("a", 158)
    manager.complete("a")
    manager.schedule("a", 1)
    assert manager.sequence("a").num_evicted == 0, "scheduled tokens must not evict"
    manager.complete("a")
    assert manager.sequence("a").block_table[:2] == [-1, manager.sequence("a").block_table[1]]
    with pytest.raises(BlockMisuse, match="column 0, which was evicted"):
        manager.sequence("a").slots(31, 33)
    manager.check_integrity()


def test_blocks_wait_for_open_steps() -> None:
    """Finish while a step reads: the blocks come back when it ends, also if steps overlap."""
    manager = BlockManager(4, 4, is_prefix_cached=False)
    manager.open("a", list(range(16)))
    first = manager.begin_step([manager.schedule("a", 16)])
    second = manager.begin_step()
    manager.finish("a")
    manager.open("b", [1])
    with pytest.raises(OutOfBlocks, match="1 blocks wanted, 0 of 4 free"):
        manager.schedule("b", 1)
    manager.end_step(second)
    assert manager.pool.num_free == 0 and manager.pool.num_waiting == 4
    manager.end_step(first)
    manager.schedule("b", 1)
    manager.check_integrity()
    with pytest.raises(BlockMisuse, match="is not open"):
        manager.end_step(first)


def test_waiting_blocks_can_be_hit() -> None:
    manager = BlockManager(4, 4)
    prefilled(manager, "a", list(range(9)))
    step = manager.begin_step()
    manager.finish("a")
    assert manager.open("b", list(range(9))) == 8
    manager.end_step(step)
    manager.check_integrity()


def test_out_of_blocks_changes_nothing() -> None:
    manager = BlockManager(3, 4, num_host_blocks=1)
    manager.open("a", list(range(9)))
    manager.schedule("a", 9)
    manager.complete("a")
    before = (list(manager.sequence("a").block_table), list(manager.sequence("a").token_ids))
    manager.open("b", [1, 2])
    with pytest.raises(OutOfBlocks):
        manager.schedule("b", 2, [3, 4, 5])
    assert manager.sequence("b").token_ids == [1, 2] and manager.sequence("b").num_drafts == 0
    with pytest.raises(OutOfBlocks):
        manager.preempt("a", to_host=True)
    assert (manager.sequence("a").block_table, manager.sequence("a").token_ids) == before
    assert manager.sequence("a").phase is Phase.RUNNING
    manager.check_integrity()


def test_preempt_and_resume() -> None:
    manager = BlockManager(6, 4, num_host_blocks=4, window=8)
    prefilled(manager, "a", list(range(16)))
    assert manager.sequence("a").num_evicted == 2
    pairs = manager.preempt("a", to_host=True)
    assert len(pairs) == 2 and manager.sequence("a").block_table == []
    with pytest.raises(BlockMisuse, match="is swapped"):
        manager.schedule("a", 1)
    manager.check_integrity()
    back = manager.resume("a")
    assert [host for host, _ in back] == [host for _, host in pairs]
    assert manager.sequence("a").block_table[:2] == [-1, -1]
    manager.check_integrity()
    manager.preempt("a")
    assert manager.resume("a") == [] and manager.sequence("a").num_computed == 15
    manager.check_integrity()
    with pytest.raises(BlockMisuse, match="is not preempted"):
        manager.resume("a")


def test_a_swapped_request_can_be_aborted() -> None:
    manager = BlockManager(6, 4, num_host_blocks=4)
    prefilled(manager, "a", list(range(9)))
    manager.preempt("a", to_host=True)
    manager.finish("a", is_abort=True)
    manager.check_integrity()
    assert manager.host_pool is not None and manager.host_pool.num_free == 4


def test_preemption_in_flight_forgets_drafts() -> None:
    manager = BlockManager(6, 4)
    manager.open("a", [1, 2, 3])
    manager.schedule("a", 3, [7, 8])
    manager.preempt("a")
    assert manager.sequence("a").token_ids == [1, 2, 3]
    manager.check_integrity()


def test_fork_shares_until_somebody_writes() -> None:
    """bs 16, fork at 20: A [5, 6], B [5, 6] -> [5, 9], rows [0, 4) copied."""
    manager = BlockManager(8, 16)
    manager.open("a", list(range(20)))
    manager.schedule("a", 20)
    manager.complete("a", [1])
    manager.fork("a", "b")
    assert manager.sequence("b").block_table == manager.sequence("a").block_table
    work = manager.schedule("b", 1)
    assert [(copy.source, copy.num_rows) for copy in work.copies] == [(manager.sequence("a").block_table[1], 4)]
    manager.complete("b", [2])
    assert manager.schedule("a", 1).copies == []
    manager.check_integrity()
    with pytest.raises(BlockMisuse, match="cannot fork"):
        manager.fork("a", "c")


def test_clearing_the_cache() -> None:
    manager = BlockManager(8, 4)
    prefilled(manager, "a", list(range(9)))
    manager.clear_prefix_cache()
    manager.check_integrity()
    assert len(manager.prefix_cache) == 0 and manager.open("b", list(range(9))) == 0


def test_the_trash_block_is_never_handed_out() -> None:
    manager = BlockManager(3, 4, trash_block=1)
    manager.open("a", list(range(8)))
    manager.schedule("a", 8)
    assert manager.sequence("a").block_table == [0, 2] and manager.trash_slot == 4
    with pytest.raises(BlockMisuse, match="no trash_block"):
        _ = BlockManager(3, 4).trash_slot


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.open("a", [1]), "open already"),
        (lambda m: m.open("b", []), "has no tokens"),
        (lambda m: m.schedule("z", 1), "no request is called 'z'"),
        (lambda m: m.schedule("a", 0), "0 tokens scheduled, 3 are known"),
        (lambda m: m.schedule("a", 4), "4 tokens scheduled, 3 are known"),
        (lambda m: m.schedule("a", 2, [9]), "2 tokens scheduled, 3 are known"),
        (lambda m: m.complete("a"), "0 tokens completed, 0 are in flight"),
        (lambda m: (m.schedule("a", 2), m.complete("a", [5])), "1 tokens sampled where at most 0 can be"),
        (lambda m: (m.schedule("a", 3), m.complete("a", [5, 6])), "2 tokens sampled where at most 1 can be"),
        (lambda m: m.preempt("a", to_host=True), "there is no host pool"),
        (lambda m: m.finish("z"), "no request is called"),
        (lambda m: BlockManager(4, 0), "must be at least 1"),
        (lambda m: BlockManager(4, 4, window=0), "must be at least 1"),
        (lambda m: BlockManager(0, 4), "at least one block"),
        (lambda m: BlockManager(4, 4, trash_block=4), "are not all in"),
    ],
)
def test_misuse(call: Callable[[BlockManager], Any], said: str) -> None:
    manager = BlockManager(4, 4)
    manager.open("a", [1, 2, 3])
    with pytest.raises(BlockMisuse, match=said):
        call(manager)


def test_async_steps_of_one_request() -> None:
    manager = BlockManager(8, 4)
    manager.open("a", list(range(10)))
    manager.schedule("a", 4)
    manager.schedule("a", 6)
    manager.complete("a", num_tokens=4)
    assert manager.sequence("a").num_in_flight == 6
    manager.complete("a", [3])
    manager.check_integrity()


def test_isolated_control_tokens() -> None:
    """A block ends after token 9: four blocks of four instead of three, and sharing goes on."""
    manager = BlockManager(12, 4, isolation=Isolation(control_tokens={9: "role"}, classes=frozenset({"role"})))
    ids = [9, 1, 2, 3, 4, 9, 5, 6, 7]
    prefilled(manager, "a", ids)
    sequence = manager.sequence("a")
    assert sequence.edges == [0, 1, 5, 6] and len(sequence.block_table) == 4
    slots = sequence.slots(0, 9)
    assert [slot % 4 for slot in slots] == [0, 0, 1, 2, 3, 0, 0, 1, 2]
    assert manager.open("b", [*ids[:6], 8]) == 6
    manager.schedule("b", 1)
    manager.complete("b", [9])
    manager.check_integrity()


def test_what_an_observer_is_told() -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    manager = BlockManager(4, 4, observer=lambda event, fields: events.append((event, fields)), window=6)
    manager.open("a", list(range(9)), Namespace(salt="s"))
    step = manager.begin_step([manager.schedule("a", 9)])
    manager.end_step(step)
    manager.complete("a", [4])
    manager.open("b", list(range(5)), Namespace(salt="s"))
    manager.finish("b")
    manager.begin_step([manager.schedule("a", 1, [6])])
    manager.complete("a", [7])
    manager.fork("a", "c")
    manager.schedule("c", 1)
    kinds = [event for event, _ in events]
    assert kinds[:8] == ["req", "alloc", "step", "fwd", "step", "commit", "store", "store"]
    assert {"free", "hit", "ref", "rollback", "copy"} <= set(kinds)
    told = dict(reversed(events))
    assert told["req"]["ns"] == {"salt": "s"} and told["hit"]["tok"] == 4 and told["commit"]["at"] == 9


def break_count(manager: BlockManager) -> None:
    manager.pool.ref_count[0] += 1


def break_free(manager: BlockManager) -> None:
    manager.pool._free[manager.sequence("a").block_table[0]] = None


def break_stray(manager: BlockManager) -> None:
    manager.pool._free[99] = None


def break_host(manager: BlockManager) -> None:
    assert manager.host_pool is not None
    manager.host_pool.ref_count[0] = 1


def break_order(manager: BlockManager) -> None:
    manager.sequence("a").num_computed = 99


def break_columns(manager: BlockManager) -> None:
    manager.sequence("a").num_scheduled = manager.sequence("a").num_computed = 1


def break_window(manager: BlockManager) -> None:
    manager.sequence("a").num_evicted = 1


def break_early(manager: BlockManager) -> None:
    break_window(manager)
    manager.pool.release([manager.sequence("a").block_table[0]])
    manager.sequence("a").block_table[0] = -1


def break_tokens(manager: BlockManager) -> None:
    manager.sequence("a").token_ids[0] = 77


def break_written(manager: BlockManager) -> None:
    manager.sequence("a").num_computed = 5


def break_phase(manager: BlockManager) -> None:
    manager.sequence("a").phase = Phase.PREEMPTED


def break_key(manager: BlockManager) -> None:
    cache = manager.prefix_cache
    block, entry = next(iter(cache._entry_of.items()))
    cache._entry_of[block] = entry._replace(token_ids=(5,))


def break_map(manager: BlockManager) -> None:
    cache = manager.prefix_cache
    cache._block_of[next(iter(cache._block_of))] = 3
    cache._block_of[b"other"] = 2


def break_edges(manager: BlockManager) -> None:
    manager.sequence("a").edges = [0, 3]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (break_count, "tables hold it"),
        (break_free, "held, free, waiting, reserved"),
        (break_stray, "not of this pool"),
        (break_host, "requests hold it"),
        (break_order, "are out of order"),
        (break_columns, "columns for 1 tokens, 1 needed"),
        (break_window, "are evicted, the first 1 should be"),
        (break_early, "position 0 is still read"),
        (break_tokens, "published with other tokens"),
        (break_written, "published and being written"),
        (break_phase, "preempted and holds blocks"),
        (break_key, "its key is not that of its content"),
        (break_map, "keys for"),
        (break_edges, "blocks end at"),
    ],
)
def test_every_invariant_is_proved(damage: Callable[[BlockManager], None], said: str) -> None:
    manager = BlockManager(6, 4, num_host_blocks=2)
    prefilled(manager, "a", list(range(9)))
    damage(manager)
    with pytest.raises(BlockMisuse, match=said):
        manager.check_integrity()


class CacheMachine(RuleBasedStateMachine):
    """Random calls on a small pool; memory and the plain twin judge after each of them."""

    @initialize(
        block_size=st.sampled_from([1, 2, 3, 4, 16]),
        num_blocks=st.integers(3, 24),
        window=st.sampled_from([None, 1, 5, 20]),
        host=st.sampled_from([0, 6]),
    )
    def start(self, block_size: int, num_blocks: int, window: int | None, host: int) -> None:
        setting = Setting(
            block_size=block_size, num_blocks=num_blocks, window=window, num_host_blocks=host, max_tokens=60
        )
        self.run = StressRun(ManagedAllocator(num_blocks, block_size, window=window, num_host_blocks=host), setting)

    @rule(
        kind=st.sampled_from(["open", "step", "step", "step", "settle", "fork", "preempt", "swap", "resume", "finish"]),
        choice=st.integers(0, 1 << 20),
        amount=st.integers(0, 1 << 20),
    )
    def operate(self, kind: str, choice: int, amount: int) -> None:
        self.run._perform(Operation(kind, choice, amount))

    @precondition(lambda self: hasattr(self, "run"))
    @invariant()
    def every_row_is_right(self) -> None:
        self.run._check_all("step")

    def teardown(self) -> None:
        if hasattr(self, "run"):
            self.run._perform(Operation("close", 0, 0))
            self.run._check_all("close")


class DirectMachine(CacheMachine):
    """The same, longer, in the slow tier."""


CacheMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
DirectMachine.TestCase.settings = settings(
    max_examples=400, stateful_step_count=100, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCache = CacheMachine.TestCase
TestCacheLong = pytest.mark.slow(DirectMachine.TestCase)
