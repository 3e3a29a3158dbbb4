"""Properties of the replay: random legal schedules are silent, single mutations are found or harmless; look-alikes."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from degarble.trace.replay import Verdict
from tests.trace.simulator import FLAVOURS, trace_of
from tests.trace.traces import Fields, healthy, verdict_of

META: Fields = {"ev": "meta", "schema": 1, "block_size": 4, "num_blocks": 16, "null_block": 0}


def told(tmp_path: Path, *events: Fields, meta: Fields = META) -> Verdict:
    """The verdict on events that are counted here."""
    return verdict_of(tmp_path / "t.jsonl", [{"n": n, **event} for n, event in enumerate((meta, *events))])


def new(name: str, count: int, **more: Any) -> Fields:
    return {"ev": "req", "req": name, "op": "new", "ids": list(range(100, 100 + count)), "ns": {}, **more}


def fwd(name: str, low: int, high: int, table: list[int], **more: Any) -> Fields:
    slots = [table[p // 4] * 4 + p % 4 for p in range(low, high)]
    return {"ev": "fwd", "req": name, "pos": [low, high], "slots": slots, "kv": high, **more}


def alloc(name: str, *blocks: int, **more: Any) -> Fields:
    return {"ev": "alloc", "req": name, "b": list(blocks), **more}


def free(name: str, *blocks: int, **more: Any) -> Fields:
    return {"ev": "free", "req": name, "b": list(blocks), **more}


def step(name: int, phase: str, *blocks: int) -> Fields:
    return {"ev": "step", "step": name, "ph": phase, "blocks": list(blocks)}


def store(name: str, block: int, ids: list[int], **more: Any) -> Fields:
    return {"ev": "store", "h": [name], "b": [block], "ids": ids, "parent": None, "ns": {}, **more}


def rules_of(verdict: Verdict) -> list[tuple[str, int]]:
    return [(violation.rule, violation.line) for violation in verdict.violations]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("seed", range(2, 6))
def test_random_schedules_are_silent(flavour: str, seed: int, tmp_path: Path) -> None:
    assert not rules_of(verdict_of(tmp_path / "t.jsonl", trace_of(flavour, seed, 250)))


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_many_random_schedules_are_silent(flavour: str, tmp_path: Path) -> None:
    for seed in range(100, 140):
        assert not rules_of(verdict_of(tmp_path / "t.jsonl", trace_of(flavour, seed, 700))), seed


KEYS = {"fwd": ("slots", "pos", "kv"), "commit": ("at", "len"), "rollback": ("len",), "alloc": ("b",), "free": ("b",)}


@pytest.mark.parametrize("flavour", ["plain", "drafts", "forks", "async", "everything"])
def test_a_number_off_by_one_is_found_at_its_event(flavour: str, tmp_path: Path) -> None:
    """Slots, ranges, lengths and table moves: a single wrong number is found where it is, or by its first consequence."""
    events = healthy(flavour)
    rng = random.Random(7)
    for _ in range(60):
        index = rng.choice([i for i, event in enumerate(events) if event["ev"] in KEYS])
        changed = copy.deepcopy(list(events))
        key = rng.choice([k for k in KEYS[events[index]["ev"]] if k in events[index]])
        value = changed[index][key]
        if isinstance(value, list):
            value[rng.randrange(len(value))] += 1
        else:
            changed[index][key] += 1
        verdict = verdict_of(tmp_path / "t.jsonl", changed)
        if events[index]["ev"] == "alloc" and not verdict.violations:
            continue  # another free block, and the request ends before it is written: harmless
        assert verdict.violations, (index, key, events[index])
        lines = [violation.line for violation in verdict.violations]
        assert min(lines) >= index if events[index]["ev"] in ("alloc", "free") else min(lines) == index


def test_a_dropped_event_is_found(tmp_path: Path) -> None:
    events = healthy("plain")
    for index in range(1, len(events) - 1, 7):
        verdict = verdict_of(tmp_path / "t.jsonl", [*events[:index], *events[index + 1 :]])
        assert ("KVC623", index + 1) in rules_of(verdict)


def test_copy_on_write_is_silent_and_its_absence_is_not(tmp_path: Path) -> None:
    fork = {"ev": "req", "req": "b", "op": "fork", "parent": "a", "ids": [100, 101, 102, 103, 104, 105], "ns": {}}
    begin = [
        new("a", 6),
        alloc("a", 1, 2),
        fwd("a", 0, 5, [1, 2]),
        fork,
        {"ev": "ref", "req": "b", "b": [1, 2], "at": 0, "rc": [2, 2]},
    ]
    own = [
        free("b", 2, at=1, rc=[1]),
        alloc("b", 3, at=1, rc=[1]),
        {"ev": "copy", "src": 2, "dst": 3, "rows": [0, 1], "req": "b"},
    ]
    assert not rules_of(told(tmp_path, *begin, *own, fwd("b", 5, 6, [1, 3])))
    assert rules_of(told(tmp_path, *begin, fwd("b", 5, 6, [1, 2])))[0] == ("KVC604", 6)
    assert rules_of(told(tmp_path, *begin, *own[:2], fwd("b", 5, 6, [1, 3])))[0] == ("KVC606", 8)


def test_two_copies_of_a_hash_are_silent(tmp_path: Path) -> None:
    ids = [100, 101, 102, 103]
    events = []
    for name, block in (("a", 1), ("b", 2)):
        events += [new(name, 5), alloc(name, block), fwd(name, 0, 4, [block]), store("h", block, ids)]
    events += [{"ev": "evict", "h": ["h"], "b": [block]} for block in (1, 2)]
    assert not rules_of(told(tmp_path, *events))
    assert rules_of(told(tmp_path, *events, events[-1])) == [("KVC623", 11)]


def test_one_hash_for_two_contents_is_found_at_the_store(tmp_path: Path) -> None:
    first = [new("a", 5), alloc("a", 1), fwd("a", 0, 4, [1]), store("h", 1, [100, 101, 102, 103])]
    second = [
        {"ev": "req", "req": "b", "op": "new", "ids": [5, 6, 7, 8, 9], "ns": {}},
        alloc("b", 2),
        fwd("b", 0, 4, [2]),
        store("h", 2, [5, 6, 7, 8]),
    ]
    assert rules_of(told(tmp_path, *first, *second)) == [("KVC608", 8)]


def test_adapter_and_salt_of_one_name_differ(tmp_path: Path) -> None:
    first = [new("a", 5, ns={"lora": "x"}), alloc("a", 1), fwd("a", 0, 4, [1])]
    stored = store("h", 1, [100, 101, 102, 103], ns={"lora": "x"})
    second = [new("b", 5, ns={"salt": "x"}), {"ev": "hit", "req": "b", "h": ["h"], "b": [1], "tok": 4}]
    assert rules_of(told(tmp_path, *first, stored, *second)) == [("KVC608", 6)]


def test_a_block_freed_inside_a_step_may_be_taken_after_its_end(tmp_path: Path) -> None:
    begin = [new("a", 4), alloc("a", 1), step(1, "B", 1), fwd("a", 0, 3, [1]), free("a", 1, rc=[0])]
    abort = {"ev": "req", "req": "a", "op": "abort"}
    take = [new("b", 4), alloc("b", 1)]
    assert not rules_of(told(tmp_path, *begin, abort, step(1, "E"), *take))
    assert rules_of(told(tmp_path, *begin, abort, *take, step(1, "E"))) == [("KVC617", 8)]


def test_window_columns_go_when_nothing_reads_them(tmp_path: Path) -> None:
    meta = META | {"window": 4, "groups": [{"g": 0, "kind": "window", "block_size": 4, "num_blocks": 16, "window": 4}]}
    begin = [new("a", 12), alloc("a", 1, 2), fwd("a", 0, 7, [1, 2])]
    late = [free("a", 1, at=0), alloc("a", 3), fwd("a", 7, 9, [0, 2, 3])]
    assert not rules_of(told(tmp_path, *begin, *late, meta=meta))
    early = [new("a", 12), alloc("a", 1, 2), fwd("a", 0, 6, [1, 2]), free("a", 1, at=0)]
    assert rules_of(told(tmp_path, *early, meta=meta)) == [("KVC615", 4)]


def test_an_optimistic_window_start_is_found(tmp_path: Path) -> None:
    """Research KC12: window 128, blocks of 32, position 158 in flight still reads 31."""
    group = {"g": 0, "kind": "window", "block_size": 32, "num_blocks": 16, "window": 128}
    meta = META | {"block_size": 32, "groups": [group]}
    table = [1, 2, 3, 4, 5]

    def forward(low: int, high: int) -> Fields:
        slots = [table[p // 32] * 32 + p % 32 for p in range(low, high)]
        return {"ev": "fwd", "req": "a", "pos": [low, high], "slots": slots, "kv": high}

    begin = [new("a", 160), alloc("a", *table), forward(0, 158), step(1, "B", *table), forward(158, 159)]
    assert rules_of(told(tmp_path, *begin, free("a", 1, at=0), meta=meta)) == [("KVC615", 6)]
    assert not rules_of(told(tmp_path, *begin, step(1, "E"), free("a", 1, at=0), meta=meta))


def test_drafts_and_rollbacks(tmp_path: Path) -> None:
    begin = [new("a", 5), alloc("a", 1, 2, 3), fwd("a", 0, 5, [1, 2, 3])]
    begin += [{"ev": "commit", "req": "a", "len": 5, "at": 5, "ids": [1]}, fwd("a", 5, 9, [1, 2, 3], draft=True)]
    right = {"ev": "rollback", "req": "a", "len": 7, "at": 6, "ids": [2, 3]}
    assert not rules_of(told(tmp_path, *begin, right, fwd("a", 7, 8, [1, 2, 3])))
    assert rules_of(told(tmp_path, *begin, right | {"len": 8})) == [("KVC616", 6)]
    assert rules_of(told(tmp_path, *begin, right, fwd("a", 8, 9, [1, 2, 3], draft=True)))[0] == ("KVC616", 7)
    assert rules_of(told(tmp_path, *begin, fwd("a", 9, 10, [1, 2, 3], draft=True)))[0] == ("KVC616", 6)
    cut = [right, free("a", 3), free("a", 2), alloc("a", 4), fwd("a", 7, 8, [1, 4, 3])]
    assert rules_of(told(tmp_path, *begin, *cut))[0] == ("KVC616", 8)


def test_phase_shift_is_named(tmp_path: Path) -> None:
    verdict = told(tmp_path, new("a", 5), alloc("a", 1, 2), fwd("a", 0, 5, [1, 2], rope=[3, 4, 5, 6, 7]))
    assert verdict.violations[0].measured["phase_shift_tokens"] == 3
    slots = [5, 6, 7, 8, 9]
    shifted = {"ev": "fwd", "req": "a", "pos": [0, 5], "slots": slots, "kv": 5}
    found = told(tmp_path, new("a", 5), alloc("a", 1, 2), shifted).violations[0]
    assert found.rule == "KVC602" and "+1 tokens away" in found.message


def test_declared_offset_must_show_in_the_position_ids(tmp_path: Path) -> None:
    begin = [new("a", 4, rope_offset=-12), alloc("a", 1)]
    assert not rules_of(told(tmp_path, *begin, fwd("a", 0, 3, [1], rope=[-12, -11, -10])))
    assert rules_of(told(tmp_path, *begin, fwd("a", 0, 3, [1]))) == [("KVC607", 3)]


def test_context_shifts_add_up(tmp_path: Path) -> None:
    """Research KC07: −50 and −20 need a rotation by −70."""
    begin = [new("a", 4), alloc("a", 1), fwd("a", 0, 3, [1])]
    shift = {"ev": "shift", "req": "a", "range": [0, 3]}
    first = shift | {"delta": -50, "applied": 0}
    assert not rules_of(told(tmp_path, *begin, first, shift | {"delta": -20, "applied": -70}))
    assert rules_of(told(tmp_path, *begin, first, shift | {"delta": -20, "applied": -20})) == [("KVC630", 5)]


def test_context_parallel_slots_of_the_research_case(tmp_path: Path) -> None:
    """Research KC28: bs 8, four ranks, interleave 2, rank 2, T = [3, 7]."""
    meta = META | {"block_size": 8, "cp": 4, "interleave": 2, "rank": 2}
    wanted = {0: -1, 4: 24, 5: 25, 12: 26, 13: 27, 36: 56, 37: 57}
    slots = []
    for p in range(38):
        o = p % 32
        slots.append([3, 7][p // 32] * 8 + o // 8 * 2 + o % 2 if o // 2 % 4 == 2 else -1)
    assert {p: slots[p] for p in wanted} == wanted
    forward = {"ev": "fwd", "req": "a", "pos": [0, 38], "slots": slots, "kv": 38}
    assert not rules_of(told(tmp_path, new("a", 40), alloc("a", 3, 7), forward, meta=meta))
    stolen = forward | {"slots": [31, *slots[1:]]}
    assert rules_of(told(tmp_path, new("a", 40), alloc("a", 3, 7), stolen, meta=meta)) == [("KVC622", 3)]


def test_kernel_block_size_of_the_research_case(tmp_path: Path) -> None:
    """Research KC04: blocks of 128, kernel pages of 64, position 70 of block 3 is slot 454, not 198."""
    meta = META | {"groups": [{"g": 0, "block_size": 128, "kernel_block_size": 64, "num_blocks": 8}]}
    begin = [new("a", 72), alloc("a", 3)]
    slots = list(range(384, 384 + 71))
    assert slots[70] == 454
    forward = {"ev": "fwd", "req": "a", "pos": [0, 71], "slots": slots, "kv": 71, "tab": [6, 7]}
    assert not rules_of(told(tmp_path, *begin, forward, meta=meta))
    wrong = forward | {"slots": [*slots[:70], 198]}
    assert rules_of(told(tmp_path, *begin, wrong, meta=meta)) == [("KVC624", 3)]


def test_loaded_rows_are_trusted_and_known_keys_are_not(tmp_path: Path) -> None:
    load = {"ev": "xfer", "id": "x", "dir": "load", "b": [1], "key": "k"}
    begin = [new("a", 6), alloc("a", 1, 2), load | {"ph": "B"}, load | {"ph": "E"}]
    use = [{"ev": "commit", "req": "a", "len": 4}, fwd("a", 4, 5, [1, 2])]
    assert not rules_of(told(tmp_path, *begin, *use))
    keep = {"ev": "xfer", "id": "s", "dir": "store", "b": [5], "key": "k"}
    other = [
        {"ev": "req", "req": "z", "op": "new", "ids": [9, 9, 9, 9, 9], "ns": {}},
        alloc("z", 5),
        fwd("z", 0, 4, [5]),
        keep | {"ph": "B"},
        keep | {"ph": "E", "crc_src": "1", "crc_dst": "1"},
    ]
    assert rules_of(told(tmp_path, *other, *begin, *use))[0] == ("KVC606", 11)
    changed = load | {"ph": "E", "crc_src": "2", "crc_dst": "2"}
    assert rules_of(told(tmp_path, *other, *begin[:3], changed))[0] == ("KVC618", 9)


def test_asynchronous_scheduling_before_the_commit_is_silent(tmp_path: Path) -> None:
    ahead = [new("a", 4), alloc("a", 1, 2), step(1, "B", 1, 2), fwd("a", 0, 4, [1, 2]), step(2, "B", 1, 2)]
    ahead += [fwd("a", 4, 5, [1, 2]), step(1, "E"), {"ev": "commit", "req": "a", "len": 4, "at": 4, "ids": [7]}]
    ahead += [step(2, "E"), {"ev": "commit", "req": "a", "len": 5, "at": 5, "ids": [8]}, fwd("a", 5, 6, [1, 2])]
    assert not rules_of(told(tmp_path, *ahead))
