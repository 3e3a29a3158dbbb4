"""Whose `qweight` it is: GPTQ, AWQ GEMM and AWQ GEMV share their names and differ in axes (here 4 bits, 8 to a word).

             qweight           qzeros              scales                g_idx
    gptq     [in / 8, out]     [groups, out / 8]   [groups, out]         [in]
    awq      [in, out / 8]     [groups, out / 8]   [groups, out]         -
    awq_gemv [out, in / 8]     [out, width]        [out, width * 8]      -         width: padded, see awq_gemv.py

The second axis of codes and scales tells the first two apart even for a square matrix. One function decides for all
three, so that exactly one claims; the label only breaks a tie, or speaks where companions are gone.
"""

from __future__ import annotations

from degarble.checkpoint.interface import TensorInfo
from degarble.formats.integer_agreement import INTEGERS, WORDS, widths_for
from degarble.formats.interface import Parts
from degarble.formats.scheme import Scheme

PACKED = 8
"""Codes in one word of AWQ, which knows 4 bits only."""

OTHER_LABELS = frozenset({"marlin", "bitblas", "qqq", "gemv_fast", "gemv-fast", "exl3", "fp8", "paroquant"})
"""Labels of layouts under the same names that no file here reads: left unknown rather than misread."""


def layout_of(parts: Parts, declared: Scheme | None) -> tuple[str, int]:
    """Which format file owns a `qweight`, and how sure that is; ("", 0) for none."""
    payload = parts.get("qweight")
    if payload is None or payload.dtype in INTEGERS - WORDS:
        return "", 0
    said = _declared_layout(declared)
    if len(payload.shape) == 2 and payload.dtype in WORDS:
        allowed = _allowed(payload, parts)
        if len(allowed) == 1:
            return next(iter(allowed)), 3
        if said in allowed:
            return said, 3
        if not allowed and declared is not None and declared.format in OTHER_LABELS:
            return "", 0
    return (said, 2) if said else ("", 0)


def _declared_layout(declared: Scheme | None) -> str:
    if declared is None or declared.method not in ("gptq", "awq"):
        return ""
    return "awq_gemv" if declared.method == "awq" and declared.format == "gemv" else declared.method


def _allowed(payload: TensorInfo, parts: Parts) -> frozenset[str]:
    """Layouts that the companions' shapes allow; a companion that contradicts a stronger one is left out."""
    allowed: frozenset[str] = frozenset()
    for fits in (_by_scales(payload, parts), _by_index(payload, parts), _by_zeros(payload, parts)):
        allowed = (allowed & fits or allowed) if allowed else fits
    return allowed


def _by_scales(payload: TensorInfo, parts: Parts) -> frozenset[str]:
    scale = parts.get("scales")
    if scale is None or len(scale.shape) != 2:
        return frozenset()
    (rows, columns), (first, second) = payload.shape, scale.shape
    fits = {
        "gptq": second == columns,
        "awq": second == columns * PACKED,
        "awq_gemv": first == rows and second % PACKED == 0,
    }
    return frozenset(name for name, yes in fits.items() if yes)


def _by_index(payload: TensorInfo, parts: Parts) -> frozenset[str]:
    index = parts.get("g_idx")
    if index is None or len(index.shape) != 1:
        return frozenset()
    return frozenset({"gptq"}) if widths_for(index.shape[0], payload.shape[0]) else frozenset()


def _by_zeros(payload: TensorInfo, parts: Parts) -> frozenset[str]:
    zeros = parts.get("qzeros")
    if zeros is None or len(zeros.shape) != 2:
        return frozenset()
    rows, columns = payload.shape
    fits = {
        "gptq": bool(widths_for(columns, zeros.shape[1])),
        "awq": zeros.shape[1] == columns,
        "awq_gemv": zeros.shape[0] == rows,
    }
    return frozenset(name for name, yes in fits.items() if yes)
