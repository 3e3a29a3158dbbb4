"""Lines of events, however they are cut, and addresses."""

from __future__ import annotations

import pytest

from degarble.errors import UsageError
from degarble_engine.endpoint.client import base_of
from degarble_engine.endpoint.event_lines import MAX_LINE, EventLines

STREAM = 'data: {"a": "ä客"}\r\n\r\n: alive\n\nevent: x\ndata:[DONE]\n\n'.encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_do_not_depend_on_how_the_network_cuts(size: int) -> None:
    lines = EventLines()
    found = [line for at in range(0, len(STREAM), size) for line in lines.feed(STREAM[at : at + size])]
    assert found == ['{"a": "ä客"}'.encode(), b"[DONE]"]


def test_a_line_without_an_end_is_refused() -> None:
    lines = EventLines()
    with pytest.raises(ValueError, match="a line of more than"):
        for _ in range(MAX_LINE // 100_000 + 1):
            lines.feed(b"x" * 100_000)


def test_addresses() -> None:
    assert {base_of(f"http://h:1{end}") for end in ("", "/", "/v1", "/v1/")} == {"http://h:1/v1"}
    for bad in ("h:1", "ftp://h", "http://", ""):
        with pytest.raises(UsageError, match="is no address"):
            base_of(bad)
