"""What headers of integer formats allow."""

from __future__ import annotations

import pytest

from degarble.formats.integer_agreement import disagreements, grouping, needed_roles, pick_width, widths_for
from degarble.formats.scheme import Scheme


def group(size: int | None, bits: int = 4) -> Scheme:
    """A declared scheme; no size is one scale a row."""
    return Scheme(method="gptq", num_bits=bits, strategy="group" if size else "channel", group_size=size)


def test_words_allow_several_widths() -> None:
    assert widths_for(128, 16) == {4}
    assert widths_for(8, 1) == {2, 3, 4}
    assert widths_for(40, 4) == {3}
    assert widths_for(None, 4) == widths_for(0, 0) == frozenset()


def test_the_declared_width_is_believed_where_shapes_allow_it() -> None:
    assert pick_width([frozenset({2, 3, 4})], group(128, 3)) == 3
    assert pick_width([frozenset({2, 3, 4})], group(128, 8)) == 4
    assert pick_width([frozenset({8}), frozenset({4})], group(128, 4)) == 8
    assert pick_width([], group(128, 5)) == 5
    assert pick_width([], None) is None
    assert pick_width([], group(128, 16)) is None


@pytest.mark.parametrize(
    ("columns", "groups", "declared", "found"),
    [
        (256, 2, group(128), ("group", 128)),
        (200, 2, group(128), ("group", 128)),  # a short last group
        (128, 1, group(128), ("group", 128)),  # one group that is the row
        (96, 1, group(128), ("group", 128)),  # a group longer than the row
        (128, 1, group(None), ("channel", None)),
        (128, 1, None, ("channel", None)),
        (256, 4, group(128), ("group", 64)),
        (256, 1, group(128), ("channel", None)),
        (256, 4, group(None), ("group", 64)),
        (None, 4, group(64), ("group", 64)),
        (256, None, group(None), ("channel", None)),
        (0, 0, None, (None, None)),
    ],
)
def test_grouping(
    columns: int | None, groups: int | None, declared: Scheme | None, found: tuple[str | None, int | None]
) -> None:
    assert grouping(columns, groups, declared) == found


def test_what_a_declaration_makes_necessary() -> None:
    assert needed_roles(None, "scale", asymmetric=("zero_point",)) == ("scale",)
    said = Scheme(method="x", symmetric=False, act_order="group", activations="static")
    assert needed_roles(said, "scale", asymmetric=("zero_point",)) == ("scale", "zero_point", "g_idx", "input_scale")
    assert needed_roles(Scheme(method="x", act_order="weight", activations="dynamic"), "scale") == ("scale",)


def test_one_scale_a_tensor_against_groups() -> None:
    stored = Scheme(method="gptq", type="int", num_bits=4, strategy="tensor")
    (found,) = disagreements(group(128), stored, methods=frozenset({"gptq"}))
    assert (found.about, found.expected, found.found) == ("group_size", "scales per group", "scales per tensor")
    floats = Scheme(method="gptq", type="float", num_bits=4)
    assert [item.about for item in disagreements(floats, stored, methods=frozenset({"gptq"}))] == ["dtype"]
