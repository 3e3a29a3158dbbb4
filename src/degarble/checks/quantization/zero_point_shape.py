"""QNT116: zero points that are packed, oriented or typed in another way than their format says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from degarble.checks.quantization.dispute_findings import findings
from degarble.evidence.disputes import Dispute
from degarble.finding import Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.registry import check

REPACK = Fix(id="repack-zero-points", safe=True)
"""Shapes tell which packing is there; the values stay."""

TRANSPOSE = Fix(id="repack-zero-points", safe=False)


@check("QNT116", symptom_of=("CKP101", "CKP105", "QNT101", "QNT104", "QNT105"))
def zero_point_shape(disputes: Sequence[Dispute]) -> Iterator[Finding]:
    """Zero points are not packed, oriented or typed as their format demands.

    ## What it looks for
    The shape and dtype of the zero points of every quantised linear against what the format needs for this weight:
    packed along the output axis into 32-bit words (GPTQ, AWQ, compressed-tensors) or one a group (others), as many
    groups as there are scales. This is about the tensors; the config says nothing of it.

    ## Why output turns to garbage
    A reader that expects eight zero points in a word takes eight neighbours for one number, or reads past the row. An
    exporter that writes them unpacked, one a byte, produces a tensor with the shape of the scales.

    ## What you will see
    A shape mismatch at load, or, where the reader reshapes, a constant offset in every group: one token repeated.

    ## How to tell it from its look-alikes
    Zero points that are absent belong to QNT101. Zero points whose *values* are off by one are WGT206: a matter of
    contents that shapes cannot show. AWQ's GEMV layout pads the rows of its zero points on purpose. With a wrong bit
    width in the config every packed row looks wrong too; QNT104 then is the cause.

    ## How to confirm
    Compare the shape with that of the scales: equal shapes mean unpacked zero points.

    ## How to repair it
    Pack the stored zero points along the output axis. Safe unattended where they are merely unpacked, since every value
    stays what it is. A transposed tensor can be turned back, which takes its shape for the whole story; a cut one has to
    be fetched again.

    ## References
    vllm-project/vllm#17862
    """
    for dispute in disputes:
        if dispute.about == "zero_point":
            tensors = replace(dispute, is_config=False)
            fix = REPACK if _is_unpacked(dispute.members[0]) else TRANSPOSE
            yield from findings(tensors, "zero points", fix, fix)


def _is_unpacked(module: StoredModule) -> bool:
    """One zero point for each scale."""
    zeros, scale = module.part("zero_point"), module.part("scale")
    return zeros is not None and scale is not None and zeros.shape == scale.shape
