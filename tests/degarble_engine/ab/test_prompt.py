"""Prompts as the field's data sets spell them, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.errors import UsageError
from degarble_engine.ab.prompt import read_prompts


def test_all_spellings(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        'plain text\n\n{"prompt": "a", "reference": "b", "references": ["c"]}\n{"text": "d", "pattern": "x+"}\n'
        '{"messages": [{"role": "user", "content": "e"}], "json": true}\n'
    )
    found = read_prompts(str(file))
    assert [one.text for one in found] == ["plain text", "a", "d", "e"]
    assert [one.number for one in found] == [1, 3, 4, 5]
    assert found[1].references == ("b", "c") and found[2].pattern == "x+"
    assert found[3].must_be_json and found[3].messages == ({"role": "user", "content": "e"},)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": ', "line 1: expected JSON"),
        ('{"question": "a"}', "line 1: expected `prompt`, `text` or `messages`, found question"),
        ('{"prompt": "a", "pattern": "("}', "line 1: expected a regular expression"),
        ('{"prompt": "a", "reference": 3}', "line 1: expected text under 'reference'"),
        ('{"messages": [{"role": "user"}]}', "line 1: expected `messages`"),
        ("[" * 100_000, "plain"),
        ("", "no prompt in it"),
    ],
)
def test_lines_that_are_refused(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(line)
    if message == "plain":  # not an object: a text like any other
        assert len(read_prompts(str(file))) == 1
        return
    with pytest.raises(UsageError, match=message):
        read_prompts(str(file))


def test_deep_json_is_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": ' + "[" * 100_000)
    with pytest.raises(UsageError, match="line 1: expected JSON"):
        read_prompts(str(file))
