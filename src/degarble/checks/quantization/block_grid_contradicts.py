"""QNT105: the grid of block scales against the declared block size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.checks.quantization.dispute_findings import findings
from degarble.evidence.disputes import Dispute
from degarble.finding import Finding, Fix
from degarble.registry import check

CORRECT_CONFIG = Fix(id="correct-quantization-config", safe=True)
RESHAPE_GRID = Fix(id="reshape-grid", safe=False)


@check("QNT105", symptom_of=("CKP101", "CKP105"))
def block_grid_contradicts(disputes: Sequence[Dispute]) -> Iterator[Finding]:
    """The grid of block scales has not the shape that the declared block size gives.

    ## What it looks for
    A weight of `rows x cols` in blocks of `a x b` needs ceil(rows / a) x ceil(cols / b) scales, in that order. The
    stored grid of every block-quantised module is compared with that. If most modules contradict, the block size in the
    config is named; if only some do, their scale tensors are.

    ## Why output turns to garbage
    A scale multiplies the wrong block. A square grid that was transposed, or a per-row scale under a config that still
    speaks of blocks, often broadcasts without a complaint; the weights are then off by the ratio of two scales.

    ## What you will see
    An error about broadcasting at load, or degraded text: one transposed grid already turned a perplexity of 8.6 into
    33.7.

    ## How to tell it from its look-alikes
    Ragged edges are legal: 576 rows in blocks of 128 have 5 row blocks, the last half full. A weight that is one block
    may store its scale as a single number. A grid transposed while square cannot be told from headers.

    ## How to confirm
    Divide the weight's rows and columns by the declared block and round up; compare with the shape of the scale.

    ## How to repair it
    If the config is outvoted, write the block size that the grids prove; safe unattended. If single grids deviate they
    were cut, flattened or transposed on the way: a transposed or flattened one can be brought back into shape, which
    takes the shape for the whole story and is not done unattended; a cut one has to be fetched.

    ## References
    vllm-project/vllm-gaudi#1220, deepseek-ai/DeepSeek-V3#2
    """
    for dispute in disputes:
        if dispute.about == "block_grid":
            yield from findings(dispute, "the grid of scales", CORRECT_CONFIG, RESHAPE_GRID)
