"""Evidence from running a model beside its reference: what the layer walk of `degarble compare` found.

Plain numbers and places. The walk itself needs torch and lives in `degarble_engine`; it supplies this, and the rules of
level `forward` judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides
from degarble.finding import Location, Measure, Severity


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """One component that is not the reference's, found by local tests."""

    places: tuple[Location, ...]
    """The component, and the modules that show it where it is more than one."""
    message: str
    severity: Severity
    measured: Mapping[str, Measure]
    bound: Mapping[str, Measure]
    planted_kl: float | None = None
    """KL divergence of the reference to itself with only this component taken from the candidate."""
    honest_kl: float | None = None
    """The same with the reference's own component, honestly rounded to the candidate's width."""
    restored_kl: float | None = None
    """KL of the reference to the candidate with this component given back."""
    total_kl: float | None = None
    """KL of the reference to the candidate, at the same positions."""
    proven: bool = False
    """Whether the counterfactuals bear it out."""


class Collapse(msgspec.Struct, frozen=True, kw_only=True):
    """A block whose output lost its size on the reference's own input."""

    location: Location
    block: str
    ratio: float
    """Standard deviation over the reference's."""
    mean_ratio: float
    """Mean |output| over the reference's."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """Where the candidate's own run first leaves what rounding of activations alone does to the reference."""

    location: Location
    error: float
    """Relative error of the hidden state behind the layer."""
    floor: float


class Stray(msgspec.Struct, frozen=True, kw_only=True):
    """How one plainly rounded module's error is distributed, in units of what its rounding should cost."""

    location: Location
    module: str
    kind: str
    """Equal for the same module of all layers."""
    z: float
    """rms of error / sigma."""
    row_z: float
    """Of the worst row."""
    row: int
    coverage: float
    """Share of the error within two sigma."""
    weight_z: float
    """The same in weight space, without activations, over its peers'."""


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """A weight that is not the reference's beyond its format, and what that does on the reference's own input."""

    location: Location
    module: str
    norm: str | None
    """The norm whose fold it does not undo, while others behind that norm do; None where it is no matter of folds."""
    relative: float
    """Error of the module's output over the output."""
    cosine: float
    slope: float
    z: float | None


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One position at the end."""

    sequence: int
    position: int
    text: str
    kl: float
    agrees: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """Everything a walk over both models found."""

    blames: tuple[Blame, ...] = ()
    collapses: tuple[Collapse, ...] = ()
    strays: tuple[Stray, ...] = ()
    """Every module whose error has a distribution to be compared with."""
    misfits: tuple[Misfit, ...] = ()
    departure: Departure | None = None
    kl: float | None = None
    """Mean over positions, reference to candidate, in nats; None where the outputs cannot be compared."""
    noise_kl: float = 0.0
    top1_agreement: float | None = None
    positions: tuple[Disagreement, ...] = ()
    """The worst positions."""
    num_positions: int = 0
    details: Mapping[str, object] = field(default_factory=dict)
    """By layer and module, for the report."""


@provides("forward_pass")
def forward_pass() -> ForwardPass:
    """Only a command that runs the model has it."""
    raise EvidenceMissing("needs a forward pass: degarble compare TARGET REFERENCE")
