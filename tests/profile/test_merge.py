"""Partial profiles merge in any order and any grouping, and the executor does not care who is first."""

from __future__ import annotations

import random
import threading
import time
from functools import partial, reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.executor import ThreadExecutor, Unit
from degarble.profile.tensor_profile import MAX_LISTED_ROWS, RowSet, TensorProfile, ValueCounts

PLACES = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))
COUNTS = st.builds(
    ValueCounts,
    zeros=st.integers(0, 5),
    first_zero=PLACES,
    negatives=st.integers(0, 5),
    first_negative=PLACES,
    subnormals=st.integers(0, 5),
    first_subnormal=PLACES,
    min_positive=st.none() | st.floats(1e-9, 1),
)
PARTS = st.lists(
    st.builds(
        TensorProfile,
        name=st.just("t"),
        dtype=st.just("BF16"),
        shape=st.just((9, 9)),
        num_rows=st.integers(0, 4),
        count=st.integers(1, 99),
        nonfinite=st.integers(0, 9),
        first_nonfinite=PLACES,
        absmax=st.none() | st.floats(0, 1e9),
        constant=st.none() | st.integers(0, 1),
        flat_bytes=st.integers(0, 9),
        first_flat=st.none() | st.integers(0, 9),
        counts=COUNTS,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=80, deadline=None)
@given(parts=PARTS, seed=st.integers(0, 999))
def test_profiles_merge_in_any_order(parts: list[TensorProfile], seed: int) -> None:
    whole = reduce(TensorProfile.merge, parts)
    shuffled = parts[:]
    random.Random(seed).shuffle(shuffled)
    assert reduce(TensorProfile.merge, shuffled) == whole
    at = seed % len(parts)
    if 0 < at < len(parts):
        left, right = reduce(TensorProfile.merge, parts[:at]), reduce(TensorProfile.merge, parts[at:])
        assert left.merge(right) == whole


def test_row_sets_list_the_first_rows_only() -> None:
    many = RowSet(MAX_LISTED_ROWS, tuple(range(10, MAX_LISTED_ROWS + 10)))
    joined = many.merge(RowSet(2, (3, 70_000)))
    assert (joined.count, len(joined.first), joined.first[:2]) == (MAX_LISTED_ROWS + 2, MAX_LISTED_ROWS, (3, 10))


@pytest.mark.parametrize("threads", [1, 3])
def test_results_and_progress(threads: int) -> None:
    seen: list[tuple[int, int]] = []
    units = [Unit(cost, partial(pow, cost, 2)) for cost in range(1, 20)]
    results = list(ThreadExecutor(threads).run(units, lambda done, total: seen.append((done, total))))
    assert sorted(results) == [cost * cost for cost in range(1, 20)]
    assert seen[-1] == (190, 190)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_stops_the_others(threads: int) -> None:
    ran: list[int] = []

    def work(number: int) -> int:
        ran.append(number)
        time.sleep(0.002)
        if number == 0:
            raise OSError("disk")
        return number

    units = [Unit(100 - number, partial(work, number)) for number in range(60)]
    with pytest.raises(OSError, match="disk"):
        list(ThreadExecutor(threads).run(units))
    assert len(ran) < 30


def test_an_interrupt_in_the_waiting_thread_is_prompt() -> None:
    started = threading.Event()
    ran: list[int] = []

    def work(number: int) -> int:
        started.set()
        ran.append(number)
        time.sleep(0.01)
        return number

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        list(ThreadExecutor(2).run([Unit(1, partial(work, number)) for number in range(500)], interrupt))
    assert time.perf_counter() - begin < 1
    assert len(ran) < 20


def test_representation_hides_arrays() -> None:
    part = TensorProfile(
        name="t", dtype="BF16", shape=(1, 1), num_rows=1, count=1, row_tops=((0, np.zeros(1, np.uint16)),)
    )
    assert "array" not in repr(part)
