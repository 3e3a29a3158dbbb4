"""ModuleProfile: what a sample of a module's outputs, and all of its scales, say about its values."""

from __future__ import annotations

import msgspec

Place = tuple[int, int]


class ValueStats(msgspec.Struct, frozen=True, kw_only=True):
    """Dequantised values of the sampled outputs."""

    rms: float
    mean: float
    std: float
    absmax: float
    median_abs: float
    nonfinite: int
    """Infinities and NaNs; the other statistics are those of the finite values."""
    log_row_rms: tuple[float, ...]
    """Natural logarithm of each sampled output's rms; -inf for an output of zeros."""


ALWAYS_REACHED = 0.95
"""Share of groups with code 0 from which a tool is known to bring every group there; others reach it in 0.6 at most."""


class CodeStats(msgspec.Struct, frozen=True, kw_only=True):
    """Integer codes of the sampled outputs, counted from 0: signed codes are shifted by 2**(bits - 1)."""

    num_bits: int
    num_groups: int
    """Groups in the sample."""
    histogram: tuple[int, ...]
    shift: float
    """Median over groups of (mean code - zero point)."""
    shift_up: float
    """Share of outputs whose mean (mean code - zero point) is above 0.25."""
    shift_down: float
    """Share of outputs where it is below -0.25."""
    correlation: float | None
    """Of mean code and zero point over groups; None where all zero points are equal."""
    extremes: float
    """Share of groups with the lowest or the highest code."""
    both_ends: float
    """Share of groups with both."""
    reach_zero: float
    """Share of groups with code 0."""
    rho: float | None
    """Groups without an extreme code over the number expected if extremes fell anywhere in the row; see weights.md."""
    rho_half: float | None
    """The same for groups of half the size."""
    spill: float | None
    """P(odd | the code before it in its word is 0); None where codes are not packed or too few."""
    num_spill: int

    @property
    def upper_half(self) -> float:
        """Share of codes in the upper half of the range."""
        return sum(self.histogram[len(self.histogram) // 2 :]) / max(1, sum(self.histogram))

    @property
    def has_signed_scales(self) -> bool:
        """Whether the largest magnitude of every group lies at code 0: llama.cpp and auto-round give the scale its sign."""
        return self.correlation is None and self.reach_zero > ALWAYS_REACHED

    @property
    def lower(self) -> float:
        """Share of code 0."""
        return self.histogram[0] / max(1, sum(self.histogram))

    @property
    def upper(self) -> float:
        """Share of the highest code."""
        return self.histogram[-1] / max(1, sum(self.histogram))


class ScaleStats(msgspec.Struct, frozen=True, kw_only=True):
    """All scales of a module, as `StoredModule.scales` gives them: [outputs or row blocks, groups or column blocks]."""

    shape: tuple[int, int]
    nonfinite: int
    first_nonfinite: Place | None
    zeros: int
    first_zero: Place | None
    negatives: int
    first_negative: Place | None
    min_positive: float | None
    absmax: float | None
    power_of_two: float
    """Share of scales that are powers of two; of 1024 of them, evenly taken, where there are more."""
    log2_median: float | None
    """Of the positive ones."""
    residual: float
    """Largest |log2 scale - row effect - column effect|, in octaves; 0 for fewer than two rows or columns."""
    residual_at: Place | None
    row_ratio: float
    """Largest |log2| of a row's median scale over the median row's."""
    row_at: int | None
    tiles: float | None = None
    """FP4 and MXFP8: see swizzle.swizzle_deviations; None where it does not apply."""


class ModuleProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One module with a weight matrix."""

    name: str
    outputs: tuple[tuple[int, int], ...]
    """Sampled outputs, half-open intervals; experts of a fused tensor are flattened."""
    num_outputs: int
    """All outputs there are."""
    num_values: int
    """Values sampled."""
    values: ValueStats
    codes: CodeStats | None = None
    """None for plain weights and floating-point codes."""
    scales: ScaleStats | None = None
    reach: float | None = None
    """FP4 and FP8: share of sampled groups, blocks or rows whose largest magnitude is the format's largest."""
    dead_rows: tuple[int, ...] = ()
    """Outputs whose values are all zero; of all outputs, not of the sample. At most 4096 are listed."""
    num_dead_rows: int = 0

    @property
    def is_exhaustive(self) -> bool:
        """Whether every output was read."""
        return sum(stop - start for start, stop in self.outputs) >= self.num_outputs
