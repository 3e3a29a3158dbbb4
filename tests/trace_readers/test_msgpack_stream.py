"""Cutting a stream: every value ends where msgspec says, whatever the sizes of the reads."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.trace_readers import msgpack_stream
from degarble.trace_readers.msgpack_stream import MAX_VALUE_BYTES, Damaged, read_values

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=17) | st.dictionaries(st.text(), inner, max_size=17), max_leaves=12
)


class Dribble(io.BytesIO):
    """Gives three bytes a read."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(3)


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, max_size=4))
def test_values_end_where_they_end(values: list[Any]) -> None:
    parts = [msgspec.msgpack.encode(value) for value in values]
    for stream in (io.BytesIO(b"".join(parts)), Dribble(b"".join(parts))):
        found = list(read_values(stream))
        assert [raw for _, raw in found] == parts
        assert [offset for offset, _ in found] == [sum(map(len, parts[:at])) for at in range(len(parts))]


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65535, 65536, 100_000])
def test_every_width_of_length(size: int) -> None:
    for value in (
        b"x" * size,
        "x" * size,
        [1] * size,
        dict.fromkeys(map(str, range(size)), 0),
        msgspec.msgpack.Ext(5, b"x" * size),
    ):
        raw = msgspec.msgpack.encode([value, 7])
        assert [one for _, one in read_values(io.BytesIO(raw + raw))] == [raw, raw]


@pytest.mark.parametrize(
    ("data", "offset", "said"),
    [
        (b"\x01\xc1", 1, "0xc1 begins no msgpack value"),
        (b"\x93\x01\x02", 0, "cut off after 3 bytes"),
        (b"\xc6\x00\x00\x00\x05abc", 0, "cut off"),
        (b"\xdd\xff\xff\xff\xff\x01", 0, "a value of more than"),
        (b"\xc6\xff\xff\xff\xff" + b"x", 0, "a value of more than"),
    ],
)
def test_damage_has_a_place(data: bytes, offset: int, said: str) -> None:
    with pytest.raises(Damaged, match=said) as caught:
        list(read_values(io.BytesIO(data)))
    assert caught.value.offset == offset


def test_a_promise_of_gigabytes_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msgpack_stream, "MAX_VALUE_BYTES", 1000)
    reads = 0

    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            nonlocal reads
            reads += 1
            return b"\xdb\x00\x10\x00\x00" + b"x" * 500 if reads == 1 else b"x" * 500

    with pytest.raises(Damaged, match="more than 1000 bytes"):
        list(read_values(Endless()))  # type: ignore[arg-type]
    assert reads <= 2 and MAX_VALUE_BYTES == 32 << 20
