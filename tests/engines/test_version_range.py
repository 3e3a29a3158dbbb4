"""Version numbers as engines print them, and ranges as our tables write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.engines.version_range import check_range, in_range, parse_version

IN_ORDER = ["0.5.9", "0.5.10.dev3", "0.5.10a1", "0.5.10rc2", "0.5.10", "0.5.10.post1", "0.5.11", "0.10", "1", "b4567"]


def test_versions_order_as_released() -> None:
    """Stages and post releases fall where their projects released them."""
    parsed = [parse_version(version) for version in IN_ORDER]
    assert None not in parsed
    assert parsed == sorted(parsed, key=lambda version: version or ((), 0, 0))


@pytest.mark.parametrize(
    ("left", "right"), [("5.0", "5.0.0"), ("v0.9.2", "0.9.2"), ("0.11.0+cu128", "0.11.0"), ("1.0RC1", "1.0rc1")]
)
def test_spellings_of_one_version(left: str, right: str) -> None:
    """Trailing zeros, a leading v, local parts and case do not matter."""
    assert parse_version(left) == parse_version(right) is not None


@pytest.mark.parametrize("text", ["", "nightly", "1..2", "1.2-foo", "latest+cu128", "9" * 40])
def test_no_version_is_none_not_an_error(text: str) -> None:
    """What cannot be read is neither inside nor outside a range."""
    assert parse_version(text) is None
    assert in_range(text, ">=1") is None


@pytest.mark.parametrize(
    ("version", "spec", "inside"),
    [
        ("5.20.0", ">=5.0,<5.21", True),
        ("5.21.0", ">=5.0,<5.21", False),
        ("5.21.0rc1", ">=5.0,<5.21", True),
        ("0.5.12.post1", ">=0.5.11,<0.5.13", True),
        ("1.0", "==1.0.0", True),
        ("1.0", "!=1.0", False),
        ("0.44.1", "<=0.44", False),
        ("1.0", "", True),
    ],
)
def test_ranges(version: str, spec: str, inside: bool) -> None:
    """Bounds of shipped tables, with pre- and post-releases at the edges."""
    assert in_range(version, spec) is inside


@pytest.mark.parametrize("spec", ["5.0", ">=", "~=1.0", ">=1,,<2", ">=one"])
def test_bad_ranges_raise(spec: str) -> None:
    """A range is our own text, so a slip in it is an error."""
    with pytest.raises(ValueError, match="version range"):
        check_range(spec)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_exactly_one_comparison_holds(left: list[int], right: list[int]) -> None:
    """Versions are totally ordered."""
    version, bound = (".".join(map(str, numbers)) for numbers in (left, right))
    assert sum(bool(in_range(version, f"{sign}{bound}")) for sign in ("<", "==", ">")) == 1


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text raises."""
    parse_version(text)
