"""`--target-bits`: which scheme each part of the model gets, so that the least is lost for so many bits.

Every unit has the scheme of the recipe, the same in groups of half the size, 8 bits, or stays plain. Costs by cost.py,
sizes as the export stores them, the choice by allocation.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import nn

from degarble.errors import UsageError
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import Chunk, stages_of
from degarble_engine.quantize.choice import Choice
from degarble_engine.quantize.export import Export
from degarble_engine.quantize.grid import IntGrid
from degarble_engine.quantize.recipe import Recipe
from degarble_engine.quantize.rule import PLAIN
from degarble_engine.quantize.scheme import QuantScheme, parse_scheme
from degarble_engine.quantize.site import Site, sites_of
from degarble_engine.sensitivity.allocation import Option, allocate
from degarble_engine.sensitivity.backward_walk import BackwardWalk, LayerGradients
from degarble_engine.sensitivity.cost import cost_of

LEAST_GROUP = 16
WIDE = 8
MAX_TOKENS = 2048
"""Of the calibration text: costs of units differ by orders of magnitude, and a few hundred tokens tell them apart."""


class PlannedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One unit with its options, cheapest in bits first."""

    modules: tuple[str, ...]
    """Names on disk."""
    weights: int
    schemes: tuple[str, ...]
    group_sizes: tuple[int | None, ...]
    bits: tuple[float, ...]
    """A weight."""
    costs: tuple[float, ...]
    """KL in nats a token, to second order."""
    chosen: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole choice."""

    target_bits: float
    bits: float
    cost: float
    lower_bound: float
    """No choice within the budget costs less."""
    uniform_cost: float
    """Of the recipe's own scheme everywhere."""
    tokens: int
    units: tuple[PlannedUnit, ...]

    def schemes(self, recipe: Recipe) -> dict[str, QuantScheme | None]:
        """By module."""
        found: dict[str, QuantScheme | None] = {}
        for unit in self.units:
            name, size = unit.schemes[unit.chosen], unit.group_sizes[unit.chosen]
            found |= dict.fromkeys(unit.modules, None if name == PLAIN else recipe.held(parse_scheme(name, size)))
        return found


def make_plan(
    model: WalkedModel,
    recipe: Recipe,
    choice: Choice,
    chunks: Sequence[Chunk],
    scratch: Path,
    progress: Watch | None = None,
) -> Plan:
    """Raises UsageError for a target that cannot be met."""
    target = recipe.target_bits
    assert target is not None
    own = _few(chunks)
    units = sorted(
        (unit for step in _Costs(model, recipe, choice, own, scratch, progress).layers() for unit in step),
        key=lambda unit: unit.modules,
    )
    weights = sum(unit.weights for unit in units)
    options = [
        [Option(round(bits * unit.weights), cost) for bits, cost in zip(unit.bits, unit.costs, strict=True)]
        for unit in units
    ]
    try:
        found = allocate(options, int(target * weights))
    except ValueError:
        least = sum(min(unit.bits) * unit.weights for unit in units) / weights
        raise UsageError(f"--target-bits {target:g}: {recipe.scheme} takes {least:.3f} everywhere; give more") from None
    uniform = sum(unit.costs[0] for unit in units)
    return Plan(
        target_bits=target,
        bits=found.size / weights,
        cost=found.cost,
        lower_bound=found.lower_bound,
        uniform_cost=uniform,
        tokens=sum(int(chunk.valid.sum()) for chunk in own),
        units=tuple(msgspec.structs.replace(unit, chosen=at) for unit, at in zip(units, found.chosen, strict=True)),
    )


def _few(chunks: Sequence[Chunk]) -> list[Chunk]:
    """As many as MAX_TOKENS asks for, at least one; copies, as the walk moves them on."""
    found: list[Chunk] = []
    tokens = 0
    for chunk in chunks:
        if found and tokens >= MAX_TOKENS:
            break
        found.append(Chunk(chunk.number, chunk.model, chunk.valid, chunk.reference, chunk.hidden))
        tokens += int(chunk.valid.sum())
    return found


class _Costs:
    """Costs of all units by one walk."""

    def __init__(
        self,
        model: WalkedModel,
        recipe: Recipe,
        choice: Choice,
        chunks: Sequence[Chunk],
        scratch: Path,
        progress: Watch | None,
    ) -> None:
        self.model, self.choice, self.layout = model, choice, recipe.layout()
        self.chunks = chunks
        self.options = [*options_of(recipe), None]
        self.walk = BackwardWalk(
            model=model, chunks=chunks, scratch=scratch, paths=lambda index, layer: list(self._sites(index, layer)),
            progress=progress,
        )  # fmt: skip
        self._known_bits: dict[tuple[QuantScheme, tuple[int, int]], float] = {}

    def layers(self) -> Iterator[list[PlannedUnit]]:
        """Units of each layer, the last layer first."""
        for found in self.walk:
            index, layer = found[0].index, found[0].layer
            sites = self._sites(index, layer)
            if not sites:
                continue
            stages = stages_of(found[0].chunk, index, layer, list(sites))
            yield [self._unit({path: sites[path] for path in stage}, found) for stage in stages]

    def _sites(self, index: int, layer: nn.Module) -> dict[str, list[Site]]:
        return sites_of(self.model, index, layer, self.choice.wants)

    def _unit(self, sites: Mapping[str, list[Site]], found: list[LayerGradients]) -> PlannedUnit:
        every = [site for own in sites.values() for site in own]
        weights = sum(site.weight.numel() for site in every)
        rows: list[tuple[str, int | None, float, float]] = []
        for scheme in self.options:
            if scheme is None:
                plain = float(torch.finfo(self.choice.plain_dtype).bits)
                rows.append((PLAIN, None, plain, 0.0))
            elif all(self.layout.refuses_shape(scheme, *site.weight.shape) is None for site in every):
                bits = sum(self._bits(scheme, site) * site.weight.numel() for site in every) / weights
                cost = cost_of(sites, found, scheme, self.choice.scale_dtype)
                rows.append((scheme.name, scheme.group_size, bits, cost))
        return PlannedUnit(
            modules=tuple(sorted(site.name for site in every)),
            weights=weights,
            schemes=tuple(row[0] for row in rows),
            group_sizes=tuple(row[1] for row in rows),
            bits=tuple(row[2] for row in rows),
            costs=tuple(row[3] for row in rows),
            chosen=0,
        )

    def _bits(self, scheme: QuantScheme, site: Site) -> float:
        """A weight, as the export stores a matrix of this shape."""
        rows, columns = site.weight.shape
        key = (scheme, (rows, columns))
        if key not in self._known_bits:
            self._known_bits[key] = stored_bits(self.layout, scheme, rows, columns, self.choice.scale_dtype)
        return self._known_bits[key]


def stored_bits(layout: Export, scheme: QuantScheme, rows: int, columns: int, dtype: torch.dtype) -> float:
    """Of a matrix of zeros."""
    groups = columns // scheme.group_of(columns)
    middle = torch.full((rows, groups), float(1 << (scheme.num_bits - 1)))
    grid = IntGrid(
        scales=torch.ones(rows, groups), zeros=middle, num_bits=scheme.num_bits, group_size=scheme.group_of(columns)
    )
    codes = np.full((rows, columns), 1 << (scheme.num_bits - 1), np.uint8)
    parts = layout.tensors(grid, codes, scheme, dtype)
    return 8 * sum(array.nbytes for array in parts.values()) / codes.size


def options_of(recipe: Recipe) -> list[QuantScheme]:
    """Schemes that a unit may have, the recipe's own first. Raises UsageError for one that has no neighbours."""
    usual = recipe.quant_scheme()
    if usual.type != "int" or usual.group_size is None:
        raise UsageError(f"--target-bits: needs integers in groups (W4A16, W4A16_ASYM …), not {usual.name}")
    if not recipe.layout().holds_several:
        raise UsageError(f"--target-bits: --export {recipe.export} has one scheme for all modules")
    found = [usual]
    if usual.group_size // 2 >= LEAST_GROUP:
        found.append(msgspec.structs.replace(usual, group_size=usual.group_size // 2))
    if usual.num_bits < WIDE:
        name = usual.name.replace(f"W{usual.num_bits}", f"W{WIDE}")
        found.append(msgspec.structs.replace(usual, name=name, num_bits=WIDE))
    return found
