"""The page of a trace: as bounded, closed and readable as the other pages, with what broke marked and told in words."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from degarble.cli.app import run
from degarble.report.html import policy
from tests.report.test_html import Page
from tests.trace.long_trace import write_long
from tests.trace.traces import FOLDER, Fields, healthy, write

MAX_PAGE = 1_500_000


def page_of(path: Path, tmp_path: Path, status: int) -> str:
    out = tmp_path / "page.html"
    assert run(["trace", str(path), "-q", "--html", str(out)]) == status
    return out.read_text()


def check(text: str) -> Page:
    """What holds for every page: closed, loads nothing, one title a drawing, headings in order, names that exist."""
    page = Page(text)
    assert policy() in text and "http://" not in text and "https://" not in text
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.elements:
        assert not {"src", "style"} & set(attributes) and tag not in ("img", "link", "iframe")
        assert set((attributes.get("aria-labelledby") or "").split()) <= set(ids)
    assert all(svg["role"] == "img" and svg["aria-labelledby"] for svg in page.all("svg"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))
    return page


def test_a_fault_is_marked_and_told(tmp_path: Path) -> None:
    text = page_of(FOLDER / "fault-cow-skipped.jsonl", tmp_path, 1)
    page = check(text)
    assert text.count('<path class="mark"') == 2 and text.count('<circle class="ring"') == 1
    assert {"#main", "#causes", "#pictures", "#coverage"} == {link["href"] for link in page.all("a")}
    words = page.text["desc"]
    for said in (
        "178 events, 1 in a column; 64 blocks, 1 in a row",
        "1 violation marked",
        "event 147 (KVC604), 22 blocks are held",
    ):
        assert said in words
    assert "KVC604 × 1" in page.text["td"], "the drawing's table says it as well"


@pytest.mark.parametrize("name", ["healthy-plain16", "everything"])
def test_a_healthy_trace_marks_nothing(name: str, tmp_path: Path) -> None:
    text = page_of(write(tmp_path / "t.jsonl", healthy(name)), tmp_path, 0)
    assert "no violation is marked" in check(text).text["desc"] and 'class="mark"' not in text


def test_positions_that_leave_the_cache_index_are_told_in_words(tmp_path: Path) -> None:
    events = [dict(event) for event in healthy("healthy-plain16")]
    at = next(index for index, event in enumerate(events) if event["ev"] == "fwd" and index > 60)
    low, high = events[at]["pos"]
    events[at]["rope"] = list(range(low + 7, high + 7))
    text = page_of(write(tmp_path / "t.jsonl", events), tmp_path, 1)
    assert f"{events[at]['req']}: the two lines differ" in check(text).text["li"]


def test_names_cannot_break_out(tmp_path: Path) -> None:
    nasty = '"><script>alert(1)</script>\u202e'
    events: list[Fields] = [
        event | ({"req": nasty + str(event["req"])} if "req" in event else {}) for event in healthy("healthy-plain16")
    ]
    text = page_of(write(tmp_path / "t.jsonl", events), tmp_path, 0)
    check(text)
    assert "<script>alert" not in text and "\u202e" not in text


def test_the_page_says_what_it_left_out(tmp_path: Path) -> None:
    text = page_of(write_long(tmp_path / "t.jsonl", 6000), tmp_path, 0)
    assert "6,000 events, 25 in a column; 512 blocks, 6 in a row" in check(text).text["desc"]
    assert len(text) < MAX_PAGE / 10


@pytest.mark.slow
def test_a_million_events(tmp_path: Path) -> None:
    text = page_of(write_long(tmp_path / "t.jsonl", 1_000_000), tmp_path, 0)
    assert "1,000,000 events, 4,167 in a column" in check(text).text["desc"] and len(text) < MAX_PAGE


def test_only_one_file_of_the_trace_schema_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("[canary] step=100 protected_tokens=1 sweep_passes=3 violations=0 launch_tags_active=8/12\n")
    for option in ("--html", "--timeline", "--minimal"):
        assert run(["trace", str(path), option, str(tmp_path / "out.html")]) == 2
    assert run(["trace", str(FOLDER / "healthy-spec.jsonl"), str(path), "--html", str(tmp_path / "o.html")]) == 2
