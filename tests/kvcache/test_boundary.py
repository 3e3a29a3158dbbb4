"""Which boundary a first bad position lies on: each kind, look-alikes, and a chance that is the true share of positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.api import trace
from degarble.kvcache.boundary import TELLING, Boundaries, fingerprint
from degarble.trace.edges import MAX_EDGES, MAX_REQUESTS
from tests.trace.traces import Fields, healthy, write

ALL = Boundaries(
    num_tokens=1000,
    block_sizes=(16, 64),
    chunk_edges=(250, 500, 750),
    windows=(300,),
    prefix=130,
    rejections=(411, 415),
    block_strides=(("elements", 1 << 20), ("bytes", 1 << 21)),
    num_blocks=4096,
)


@pytest.mark.parametrize(
    ("position", "block", "kind", "value"),
    [
        (704, None, "block", 64),
        (500, None, "chunk", 500),
        (600, None, "window", 300),
        (700, None, "window", 700),
        (130, None, "prefix", 130),
        (415, None, "rejection", 415),
        (77, 2048, "2^31", 2048),
        (77, 1024, "2^31", 1024),
    ],
)
def test_each_kind_is_named_first_and_is_not_chance(position: int, block: int | None, kind: str, value: int) -> None:
    found = fingerprint(position, ALL, block)
    assert (found.matches[0].kind, found.matches[0].value) == (kind, value), found.told()
    is_telling = found.matches[0].chance * len(found.tried) <= TELLING
    assert (found.best is not None) == is_telling
    assert is_telling == (kind not in ("block",)), "one in 64 is met by chance among nine boundaries"


@pytest.mark.parametrize("position", [1, 77, 251, 299, 601, 699, 701, 131, 414, 997])
def test_look_alikes_beside_a_boundary_match_nothing(position: int) -> None:
    found = fingerprint(position, ALL, 2047)
    assert not found.matches and found.best is None
    assert "lies on no boundary that was tried (block 16, block 64, 3 chunk edges, window 300" in found.told()


def test_position_0_and_nothing_known_say_nothing() -> None:
    assert fingerprint(0, ALL).told() == "" and fingerprint(7, Boundaries()).told() == ""
    assert fingerprint(7, Boundaries(block_sizes=(1,), windows=(1,), chunk_size=1)).tried == ()


def test_the_chance_is_the_share_of_positions_that_match() -> None:
    counts: dict[tuple[str, str], int] = {}
    chances: dict[tuple[str, str], float] = {}
    for position in range(1, 1000):
        for match in fingerprint(position, ALL).matches:
            where = (match.kind, match.says)
            counts[where] = counts.get(where, 0) + 1
            chances[where] = match.chance
    assert len(counts) == 7
    for where, count in counts.items():
        assert count == pytest.approx(chances[where] * 999, abs=1), where


def test_telling_matches_are_rare_among_random_positions() -> None:
    """What is called telling is met by at most 5 % of positions: that is what the bound promises."""
    telling = sum(fingerprint(position, ALL).best is not None for position in range(1, 1000))
    assert 0 < telling <= TELLING * 999


def test_a_chance_is_told_as_one() -> None:
    told = fingerprint(32, Boundaries(block_sizes=(16,), rejections=(5,), num_tokens=100)).told()
    assert (
        "a multiple of the block size 16 (by chance 0.062): of 2 boundaries tried, one is met by chance as easily"
        in told
    )


def first_message(tmp_path: Path, events: list[Fields]) -> tuple[str, str]:
    found = trace([write(tmp_path / "t.jsonl", events)]).causes[0].finding
    return found.rule, found.message


def changed(name: str, pick: Any, change: Any) -> list[Fields]:
    """A copy with one event changed, cut after it."""
    events = [dict(event) for event in healthy(name)]
    at = next(index for index, event in enumerate(events) if pick(event))
    change(events[at])
    return events[: at + 1]


def test_a_trace_names_the_chunk_that_positions_break_at(tmp_path: Path) -> None:
    """Position ids that begin anew with a chunk, as transformers#43082 had it."""

    def restart(event: Fields) -> None:
        event["rope"] = list(range(event["pos"][1] - event["pos"][0]))

    events = changed(
        "healthy-plain16", lambda e: e["ev"] == "fwd" and e["pos"][0] > 0 and e["pos"][1] - e["pos"][0] > 2, restart
    )
    low = events[-1]["pos"][0]
    rule, message = first_message(tmp_path, events)
    assert rule == "KVC607" and f"position {low} is" in message and "where a chunk begins or ends" in message


def test_a_trace_names_no_boundary_where_there_is_none(tmp_path: Path) -> None:
    def off(event: Fields) -> None:
        event["rope"] = [*range(event["pos"][0], event["pos"][1] - 1), 5000]

    events = changed("healthy-plain16", lambda e: e["ev"] == "fwd" and e["pos"][1] - e["pos"][0] > 9, off)
    position = events[-1]["pos"][1] - 1
    assert position % 16, "a look-alike must not lie on a block"
    assert f"position {position} lies on no boundary that was tried" in first_message(tmp_path, events)[1]


def test_a_chunk_edge_is_no_evidence_for_a_rule_about_chunks(tmp_path: Path) -> None:
    events = changed(
        "healthy-plain16",
        lambda e: e["ev"] == "fwd" and e["n"] > 60,
        lambda event: event.__setitem__("kv", event["kv"] + 1),
    )
    rule, message = first_message(tmp_path, events)
    assert rule == "KVC626" and "chance" not in message and "boundary" not in message


def test_bounds_of_what_is_kept() -> None:
    from degarble.trace.edges import _Seen

    seen = _Seen()
    for position in range(3 * MAX_EDGES):
        seen.note(seen.edges, position)
    assert len(seen.edges) == MAX_EDGES and max(seen.edges) == 3 * MAX_EDGES - 1 and MAX_REQUESTS < 1000
