"""The inverse of any edits gives the original back, byte for byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.rope import RopeSource, Segment, cut, literal
from degarble.repairing.undo import UNDO_FILE, invert
from tests.memory_source import MemorySource

FILES = {"a": bytes(range(40)), "b": bytes(range(100, 130)), "c": b""}

SEGMENTS = st.one_of(
    st.binary(max_size=6).map(literal),
    st.tuples(st.sampled_from("ab"), st.integers(0, 39), st.integers(0, 39)).map(
        lambda one: next(
            iter(cut([Segment(len(FILES[one[0]]), None, one[0], 0)], min(one[1:]), max(one[1:]))), literal(b"")
        )
    ),
)
VIEWS = st.dictionaries(st.sampled_from("abcd"), st.lists(SEGMENTS, max_size=5).map(tuple))


@settings(max_examples=60, deadline=None)
@given(VIEWS)
def test_inverse_of_any_view(ropes: dict[str, tuple[Segment, ...]]) -> None:
    """Files may be rewritten from each other's pieces, dropped, added, emptied."""
    base = MemorySource(FILES)
    repaired = RopeSource(base, ropes)
    inverse = invert(repaired)
    kept = b"".join(base.read(part.file, part.start, part.length) for part in inverse.undo)
    for name, pieces in inverse.files.items():
        parts = [
            kept[p.start : p.start + p.length] if p.file == UNDO_FILE else repaired.read(p.file, p.start, p.length)
            for p in pieces
        ]
        assert b"".join(parts) == FILES[name]
    untouched = set(FILES) - set(inverse.files)
    assert all(repaired.read(name) == FILES[name] for name in untouched)
    assert set(inverse.added) == set(ropes) - set(FILES)


def test_only_what_is_lost_is_kept() -> None:
    """Moved ranges cost nothing."""
    base = MemorySource(FILES)
    head, tail = Segment(10, None, "a", 0), Segment(25, None, "a", 15)
    inverse = invert(RopeSource(base, {"a": (literal(b"new"), tail, head), "b": (Segment(30, None, "b", 0),)}))
    assert sum(part.length for part in inverse.undo) == 5
    assert set(inverse.files) == {"a", "c"}
