"""Integer rounding as the field's tools do it: the conventions, scale searches and error compensation they differ in.

    convention    codes 0..2^b-1, zero          step                        who
    asymmetric    anywhere                      (max - min) / (2^b - 1)     AWQ, GPTQ, compressed-tensors, MLX
    symmetric     2^(b-1)                       2 amax / (2^b - 1)          AutoGPTQ, GPTQModel, compressed-tensors
    narrow        2^(b-1), code 0 unused        amax / (2^(b-1) - 1)        ModelOpt, bitsandbytes, quanto
    signed        2^(b-1)                       -extreme / 2^(b-1)          llama.cpp, auto-round: the largest weight is code 0

A scale search tries smaller ranges and keeps the one with the smallest squared error. GPTQ rounds one input after the
other and moves what is left onto those that follow (arXiv:2210.17323); with activation order it begins at the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import MIN_SCALE

CONVENTIONS = ("asymmetric", "symmetric", "narrow", "signed")
DAMPING = 0.05
RATIOS = (0.95, 0.9, 0.85, 0.78, 0.7)
"""Of the full range, tried by a scale search."""
BLOCK = 64
"""Inputs between two updates of everything behind them, where there are no groups; else a group, so that each group is
measured after all updates from before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How a matrix becomes codes."""

    bits: int = 4
    group: int = 64
    """0: one scale a row."""
    convention: str = "asymmetric"
    clip: bool = False
    """Search for smaller ranges."""
    compensate: bool = False
    """GPTQ."""
    order: str = ""
    """`stored`: groups follow the activation order, g_idx tells which; `static`: groups stay, only the order of work changes."""
    scale_dtype: type = np.float16

    @property
    def is_symmetric(self) -> bool:
        """Whether all zero points are the middle."""
        return self.convention != "asymmetric"

    def size(self, columns: int) -> int:
        """Inputs in a group."""
        return self.group or columns


@dataclass(frozen=True, slots=True)
class Rounded:
    """Codes from 0 and what decodes them: w = (code - zero) * scale."""

    codes: Array
    """[out, in] uint8"""
    scales: Array
    """[out, groups] of the stored dtype"""
    zeros: Array
    """[out, groups] int32"""
    index: Array
    """[in] int32, the group of each input."""


def rounded(weight: Array, how: Rounding, inputs: Array | None = None) -> Rounded:
    """Round [out, in] float32; `inputs` [tokens, in] are needed for error compensation."""
    if not how.compensate:
        index = (np.arange(weight.shape[1]) // how.size(weight.shape[1])).astype(np.int32)
        scales, zeros = _steps(weight, how, index)
        return Rounded(_codes(weight, scales[:, index], zeros[:, index], how.bits), scales, zeros, index)
    if inputs is None:
        raise ValueError("error compensation needs inputs")
    return _compensated(weight, how, inputs)


def _steps(weight: Array, how: Rounding, index: Array) -> tuple[Array, Array]:
    """Scales and zero points of every group of columns."""
    groups = [weight[:, index == number] for number in range(int(index.max()) + 1)]
    found = [_searched(group, how) for group in groups]
    return np.stack([one[0] for one in found], axis=1), np.stack([one[1] for one in found], axis=1)


def _searched(group: Array, how: Rounding) -> tuple[Array, Array]:
    """The range as it is, or the smaller one with the smallest squared error: [out] scales and zero points."""
    best_scale, best_zero = _step(group, how, 1.0)
    if not how.clip:
        return best_scale, best_zero
    best = _error(group, best_scale, best_zero, how.bits)
    for ratio in RATIOS:
        scale, zero = _step(group, how, ratio)
        error = _error(group, scale, zero, how.bits)
        is_better = error < best
        best = np.where(is_better, error, best)
        best_scale, best_zero = np.where(is_better, scale, best_scale), np.where(is_better, zero, best_zero)
    return best_scale, best_zero


def _step(group: Array, how: Rounding, ratio: float) -> tuple[Array, Array]:
    top, middle = (1 << how.bits) - 1, 1 << (how.bits - 1)
    low, high = group.min(axis=1).clip(max=0) * ratio, group.max(axis=1).clip(min=0) * ratio
    amax = np.maximum(high, -low)
    zero = np.full(len(group), middle, np.int32)
    if how.convention == "signed":
        extreme = np.where(high > -low, high, low)
        scale = _kept(-extreme / middle, how)
    elif how.convention == "narrow":
        scale = _kept(amax / (middle - 1), how)
    elif how.convention == "symmetric":
        scale = _kept(2 * amax / top, how)
    else:
        scale = _kept((high - low) / top, how)
        zero = np.clip(np.round(-low / scale.astype(np.float32)), 0, top).astype(np.int32)
    return scale, zero


def _kept(scale: Array, how: Rounding) -> Array:
    """As it is stored; never zero."""
    return np.where(np.abs(scale) < MIN_SCALE, MIN_SCALE, scale).astype(how.scale_dtype)


def _codes(weight: Array, scale: Array, zero: Array, bits: int) -> Array:
    return np.clip(np.round(weight / scale.astype(np.float32)) + zero, 0, (1 << bits) - 1).astype(np.uint8)


def _error(group: Array, scale: Array, zero: Array, bits: int) -> Array:
    codes = _codes(group, scale[:, None], zero[:, None], bits)
    wide = scale.astype(np.float32)[:, None]
    return np.asarray(np.square(group - (codes - zero[:, None].astype(np.float32)) * wide).sum(axis=1))


def _compensated(weight: Array, how: Rounding, inputs: Array) -> Rounded:
    """GPTQ. Groups are cut along the order of work (`stored`), or along the columns as they lie."""
    columns = weight.shape[1]
    size = how.size(columns)
    hessian = inputs.T @ inputs
    order = np.argsort(-np.diag(hessian), kind="stable") if how.order else np.arange(columns)
    place = np.arange(columns) if how.order == "stored" else order
    index_at_work = (place // size).astype(np.int32)  # group of the column at each step of the work
    upper = _upper(hessian[np.ix_(order, order)])
    left = weight[:, order].copy()
    groups = int(index_at_work.max()) + 1
    scales: Array = np.zeros((len(weight), groups), how.scale_dtype)
    zeros: Array = np.zeros((len(weight), groups), np.int32)
    if how.order == "static":
        scales, zeros = _steps(weight, how, (np.arange(columns) // size).astype(np.int32))
    codes = np.empty(weight.shape, np.uint8)
    block = how.group or BLOCK
    for start in range(0, columns, block):
        stop = min(start + block, columns)
        errors = np.zeros((len(weight), stop - start), np.float32)
        for at in range(start, stop):
            group = index_at_work[at]
            if how.order != "static" and at % size == 0:
                scales[:, group], zeros[:, group] = _searched(left[:, at : at + size], how)
            scale, zero = scales[:, group].astype(np.float32), zeros[:, group]
            codes[:, at] = _codes(left[:, at], scales[:, group], zero, how.bits)
            error = (left[:, at] - (codes[:, at] - zero.astype(np.float32)) * scale) / upper[at, at]
            left[:, at + 1 : stop] -= error[:, None] * upper[at, at + 1 : stop]
            errors[:, at - start] = error
        left[:, stop:] -= errors @ upper[start:stop, stop:]
    back = np.argsort(order, kind="stable")
    return Rounded(codes[:, back], scales, zeros, index_at_work[back])


def _upper(hessian: Array) -> Array:
    """Upper Cholesky factor of the inverse of the damped Hessian."""
    damped = hessian.astype(np.float64)
    damped[np.diag_indices_from(damped)] += DAMPING * np.diag(damped).mean() + 1e-6
    inverse = np.linalg.inv(damped)
    return np.ascontiguousarray(np.linalg.cholesky((inverse + inverse.T) / 2).T.astype(np.float32))
