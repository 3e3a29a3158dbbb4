"""One linear's measured error beside every bound, and beside what honest rounding predicts. All on the reference's input.

error        rms e / rms y, with the input rounded as the candidate's arithmetic rounds it
predicted    rms sigma / rms y, from scales and input alone
coverage     share of entries within 1, 2 and 3 sigma; 68.3, 95.4 and 99.7 % for honest rounding
relative     rms of a bound / rms y: above 1 it does not even say that the error is smaller than the output
tightness    rms of a bound / rms e
inside       share of entries (tokens, for the norm-wise one) within it: below 1 what should be a bound was broken
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.stored_rounding import pair_rounding, why_unknown
from degarble_engine.numerics.error_bounds import RoundedLinear, coverage, rms, z_by_row
from degarble_engine.numerics.input_rounding import input_rounding
from degarble_engine.numerics.origin_formula import PLAIN_BITS, Reading, Widths, printed_bound
from degarble_engine.numerics.precision import Precision

UNION_SAFE, ONE_IN_HUNDRED = 1e-9, 1e-2
DETERMINISTIC, CAUCHY_SCHWARZ, SPECTRAL = "deterministic", "Cauchy-Schwarz", "spectral"
HOEFFDING_SAFE, HOEFFDING = "Hoeffding 1e-9", "Hoeffding 1e-2"
ORIGIN = {reading: f"origin, {reading.value}" for reading in Reading}
ALWAYS_HOLD = (DETERMINISTIC, CAUCHY_SCHWARZ, SPECTRAL)
SLACK = 1e-4
"""Of bounds in fp32 that an error may reach exactly: one input, one weight."""


@dataclass(slots=True, kw_only=True)
class BoundMeasure:
    """One bound of one module."""

    relative: float
    tightness: float
    inside: float


@dataclass(slots=True, kw_only=True)
class BoundMeasures:
    """One module. Plain numbers, kept with the walk's notes."""

    name: str
    kind: str
    not_judged: str | None = None
    """Why sigma and the bounds that need steps are missing."""
    error: float = 0.0
    predicted: float | None = None
    coverage: list[float] = field(default_factory=list)
    """Within 1, 2 and 3 sigma."""
    z: float | None = None
    row_z: float | None = None
    row_z_at: int = 0
    bounds: dict[str, BoundMeasure] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: dict[str, object]) -> BoundMeasures:
        """Undo `dataclasses.asdict`."""
        plain: dict[str, object] = dict(value)
        bounds = value["bounds"]
        assert isinstance(bounds, dict)
        plain["bounds"] = {name: BoundMeasure(**one) for name, one in bounds.items()}
        return cls(**plain)  # type: ignore[arg-type]


def bound_measures(pair: LinearPair, precision: Precision, is_gguf: bool) -> BoundMeasures:
    """All numbers of one pair."""
    found = BoundMeasures(name=pair.name, kind=pair.kind)
    reference, candidate = pair.folded_reference(), pair.folded_candidate()
    if not pair.input.numel():
        found.not_judged = "no token of the texts came to it"
    elif not bool(torch.isfinite(candidate).all()):
        found.not_judged = "it holds values that are not finite"
    if found.not_judged:
        return found
    known = pair_rounding(pair, precision, is_gguf)
    inputs, noise = input_rounding(pair.input, pair.column_factor(), precision)
    output = pair.input @ reference.T
    error = inputs @ candidate.T - output
    bias = pair.bias_difference()
    if bias is not None:
        error = error + bias
    if pair.reference_bias is not None:
        output = output + pair.reference_bias
    found.error = rms(error) / max(rms(output), 1e-30)
    if known is None:
        found.not_judged = why_unknown(pair.stored, is_gguf)
        return found
    linear = RoundedLinear(
        quantized=candidate, inputs=pair.input, rounding=known.rounding(), reference=reference, input_rounding=noise
    )
    _against_sigma(found, error, linear.sigma(), rms(output))
    for name, bound in _bounds(linear).items():
        found.bounds[name] = _measure(bound, error, output)
    for reading, bound in _printed(pair, precision, reference).items():
        found.bounds[ORIGIN[reading]] = _measure(torch.full((1, 1), bound), error, output)
    return found


def _against_sigma(found: BoundMeasures, error: Tensor, sigma: Tensor, size: float) -> None:
    rows = z_by_row(error, sigma)
    found.predicted = rms(sigma) / max(size, 1e-30)
    found.coverage = [coverage(error, sigma, times) for times in (1.0, 2.0, 3.0)]
    found.z, found.row_z, found.row_z_at = rms(rows), float(rows.max()), int(rows.argmax())


def _bounds(linear: RoundedLinear) -> dict[str, Tensor]:
    return {
        DETERMINISTIC: linear.deterministic(),
        CAUCHY_SCHWARZ: linear.cauchy_schwarz(),
        SPECTRAL: linear.spectral(),
        HOEFFDING_SAFE: linear.hoeffding(UNION_SAFE),
        HOEFFDING: linear.hoeffding(ONE_IN_HUNDRED),
    }


def _printed(pair: LinearPair, precision: Precision, weight: Tensor) -> dict[Reading, float]:
    """The origin's formula at the candidate's bits; nothing where neither weights nor inputs have few enough."""
    scheme = pair.stored.form.scheme if pair.stored is not None else None
    stored = scheme.num_bits if scheme is not None and scheme.num_bits else PLAIN_BITS
    bits = Widths(
        weight=min(stored, precision.weight_bits or PLAIN_BITS), activation=precision.activation_bits or PLAIN_BITS
    )
    if bits.weight >= PLAIN_BITS and bits.activation >= PLAIN_BITS:
        return {}
    return {reading: printed_bound(weight, pair.input, bits, reading) for reading in Reading}


def _measure(bound: Tensor, error: Tensor, output: Tensor) -> BoundMeasure:
    """`bound`: one number, one an entry, or ([tokens]) one for the norm of each token's error."""
    if bound.ndim == 1:
        error, output = error.norm(dim=1), output.norm(dim=1)
    size, wrong = rms(bound), error.abs() > bound * (1 + SLACK) + 1e-12
    return BoundMeasure(
        relative=_finite(size / max(rms(output), 1e-30)),
        tightness=_finite(size / max(rms(error), 1e-30)),
        inside=1.0 - float(wrong.float().mean()),
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 1e30
