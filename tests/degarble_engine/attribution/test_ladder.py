"""Classes from peers, and one suspect for each kind of fault, on synthetic linears rounded honestly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from degarble_engine.attribution.grouping import grouped
from degarble_engine.attribution.ladder import COMPENSATED, EXACT, PLAIN, UNKNOWN, peers_of, suspects
from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.measures import Measures, measure

SHAPE = (48, 128)
LEVELS = 15


def rounding(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Four bits, asymmetric, groups of 64; and the steps."""
    groups = weight.reshape(weight.shape[0], -1, 64)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (high - low) / LEVELS
    return (((groups - low) / step).round() * step + low).reshape(weight.shape), step.expand_as(groups).reshape(
        weight.shape
    )


def measured(number: int, fault: Callable[[Tensor], Tensor] | None = None, *, is_rounded: bool = True) -> Measures:
    generator = torch.Generator().manual_seed(number)
    wanted = torch.randn(SHAPE, generator=generator)
    found, steps = rounding(wanted) if is_rounded else (wanted.clone(), torch.full(SHAPE, 1e-3))
    if fault is not None:
        found = fault(found.clone())
    pair = LinearPair(
        name="mlp.up_proj", parameter=f"model.layers.{number}.mlp.up_proj.weight", stored=None, expert=None, rows=None,
        reference=wanted, candidate=found, reference_bias=None, candidate_bias=None,
        input=torch.randn(96, SHAPE[1], generator=generator),
    )  # fmt: skip
    one = measure(pair, number, False, None)
    delta = found - wanted
    error = pair.input @ delta.T
    sigma = (pair.input.pow(2) @ (steps.pow(2) / 12).T).sqrt()
    rows = delta.pow(2).sum(1) / (steps.pow(2).sum(1) / 12)
    ratio = (error / sigma).pow(2).mean(0)
    return replace(
        one, scheme="int4", has_steps=True, z=float(ratio.mean().sqrt()), row_z=float(ratio.max().sqrt()),
        weight_z=float(rows.mean().sqrt()), row_weight_z=float(rows.max().sqrt()),
        offset=abs(float((delta / steps).mean().nan_to_num())),
    )  # fmt: skip


HEALTHY = [measured(number) for number in range(12)]


def swap(values: Tensor) -> Tensor:
    return values.reshape(SHAPE[0], -1, 2).flip(-1).reshape(SHAPE)


def scaled_row(values: Tensor, factor: float) -> Tensor:
    values[5] *= factor
    return values


def test_healthy_rounding_is_silent() -> None:
    assert suspects(HEALTHY) == []
    assert peers_of(HEALTHY)["int4"].rounding == PLAIN


def test_classes_come_from_the_median() -> None:
    copies = [measured(number, is_rounded=False) for number in range(6)]
    assert peers_of(copies)["int4"].rounding == EXACT
    heavier = [replace(one, weight_z=(one.weight_z or 0) * 1.3) for one in HEALTHY]
    assert peers_of(heavier)["int4"].rounding == COMPENSATED
    assert peers_of([replace(one, has_steps=False, weight_z=None) for one in HEALTHY])["int4"].rounding == UNKNOWN
    fake = [replace(one, scheme="plain", weight_z=40.0) for one in HEALTHY]
    assert peers_of(fake)["plain"].rounding == UNKNOWN


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "scale": lambda values: values * 0.95,
    "offset": lambda values: values + 0.3,
    "rolled": lambda values: values.roll(1, 1),
    "swapped": swap,
    "row": lambda values: scaled_row(values, 0.5),
    "zero": lambda values: values * 0,
    "not finite": lambda values: values.index_fill(0, torch.tensor([3]), torch.nan),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_faulty_one_of_many_is_the_only_suspect(name: str) -> None:
    found = suspects([*HEALTHY, measured(99, FAULTS[name])])
    assert [one.measures.layer for one in found] == [99]
    assert found[0].test in {
        "scale": ("slope",),
        "row": ("row_slope", "row_weight_z_of_peers"),
        "not finite": ("not_finite",),
    }.get(name, (found[0].test,))


def test_without_scales_peers_are_the_measure() -> None:
    blind = [replace(one, has_steps=False, z=None, row_z=None, weight_z=None, row_weight_z=None) for one in HEALTHY]
    bad = replace(
        measured(99, FAULTS["swapped"]), has_steps=False, z=None, row_z=None, weight_z=None, row_weight_z=None
    )
    assert suspects(blind) == [] and [one.measures.layer for one in suspects([*blind, bad])] == [99]


def shifted(one: Measures) -> Measures:
    return replace(one, offset=1.0, z=4.5, weight_z=2.0)


def test_a_shift_outranks_a_compensated_module_far_above_its_peers() -> None:
    """The second is a true defect of compensation, and a warning; a zero point that is off is an error."""
    compensated = [replace(one, weight_z=(one.weight_z or 0) * 1.3) for one in HEALTHY]
    found = suspects([*compensated[2:], shifted(compensated[0]), replace(compensated[1], z=6.0)])
    assert [(one.test, one.is_warning, one.measures.layer) for one in found] == [("offset", False, 0), ("z", True, 1)]


def test_rounding_in_few_weights_is_no_shift() -> None:
    wanted = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    pair = LinearPair(
        name="a", parameter="a", stored=None, expert=None, rows=None, reference=wanted, candidate=rounding_of_few(wanted),
        reference_bias=None, candidate_bias=None, input=torch.ones(4, 16),
    )  # fmt: skip
    assert measure(pair, 0, False, None).reference_offset < 0.05
    pair.candidate = pair.candidate + 0.2
    assert measure(pair, 0, False, None).reference_offset > 0.3
    pair.reference_gain = pair.candidate_gain = torch.tensor([1.0, -1.0] * 8)  # a gain's sign is not the shift's
    assert measure(pair, 0, False, None).reference_offset > 0.3


def rounding_of_few(wanted: Tensor) -> Tensor:
    step = (wanted.amax(1, keepdim=True) - wanted.amin(1, keepdim=True)) / LEVELS
    return (wanted / step).round() * step


def test_clipping_is_not_a_lost_scale() -> None:
    clipped = [measured(number, lambda values: values.clamp(-2.2, 2.2)) for number in range(12)]
    assert all(abs(one.slope - 1) > abs(one.inner_slope - 1) for one in clipped)
    assert not [one for one in suspects(clipped) if one.test == "slope"]


def test_a_format_that_shrinks_everything_a_little_is_silent_and_one_that_shrinks_much_is_not() -> None:
    little = [measured(number, lambda values: values * 0.98) for number in range(12)]
    much = [measured(number, lambda values: values * 0.9) for number in range(12)]
    assert not [one for one in suspects(little) if one.test == "slope"]
    assert len([one for one in suspects(much) if one.test == "slope"]) == 12
    assert [
        one.measures.layer for one in suspects([*little, measured(99, FAULTS["scale"])]) if one.test == "slope"
    ] == [99]


@pytest.mark.parametrize("bits", [2, 3, 4, 8, None])
def test_every_width_has_bounds(bits: int | None) -> None:
    several = [replace(one, bits=bits) for one in HEALTHY]
    assert suspects(several) == []
    assert suspects([*several, replace(measured(99, FAULTS["zero"]), bits=bits)])[0].measures.layer == 99


def test_a_slightly_high_z_needs_the_weights_to_agree() -> None:
    clipped = replace(HEALTHY[0], z=1.5)
    assert suspects([*HEALTHY[1:], clipped]) == []
    assert suspects([*HEALTHY[1:], replace(clipped, z=3.0)])[0].test == "z"
    assert suspects([*HEALTHY[1:], replace(clipped, weight_z=1.11)])[0].test == "z"


def test_a_whole_type_is_one_group() -> None:
    bad = suspects([measured(number, lambda values: values * 0.9) for number in range(12)])
    groups = grouped(bad, dict.fromkeys(range(12), 7), {})
    assert [(group.kind, len(group.suspects)) for group in groups] == [("type", 12)]
