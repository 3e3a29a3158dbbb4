"""Files that appear complete or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from degarble.whole_file import write_whole


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write_whole(target, b"one")
    write_whole(target, b"two")
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_name_that_is_taken_can_be_refused(tmp_path: Path) -> None:
    target = tmp_path / "trace.jsonl"
    write_whole(target, b"one", replaces=False)
    with pytest.raises(FileExistsError):
        write_whole(target, b"two", replaces=False)
    assert target.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["trace.jsonl"]


def test_nothing_is_left_where_the_name_cannot_be_given(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "taken", b"data")
    assert os.listdir(tmp_path) == ["taken"]
