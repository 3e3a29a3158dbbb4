"""WGT209: codes that lie in another order than the format says."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.weights.blame import config_place, is_in_config
from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.checks.weights.row_pairs_interleaved import CHANGED_CODES
from degarble.evidence.pack_orders import MIN_DEVIATIONS, MIN_RATIO, Misorder, PackOrders
from degarble.finding import Confidence, Finding, Fix
from degarble.methods.interface import Declaration
from degarble.registry import Level, check


@check(
    "WGT209",
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=("WGT225", *CHANGED_CODES, *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING),
)
def pack_order_contradicts(pack_orders: PackOrders, declaration: Declaration | None = None) -> Iterator[Finding]:
    """Codes lie in another order inside their words than the format says, so that weights are permuted.

    ## What it looks for
    Row i of up_proj writes the neuron that column i of down_proj reads, and training makes the two alike: T = hidden
    size × mean cos² is 57 in the middle (gate with down 34, q with k 16, v with o 64), 1 by chance. Inside eights (and
    thirty-twos in GGUF) AWQ's order, its inverse, the reversed one and swapped pairs are tried on both axes. Reported
    where one restores T, to 2 at least, by more than 8 standard deviations and a factor of 1.25, and gains twice as
    much as any other order. Healthy pairs: 3.0 deviations at most; random weights 6.3. Measured on 13,836 pairs of 151
    checkpoints: docs/calibration.md. Found: 828 of 840 modules permuted along the inputs, 826 of 840 along the outputs,
    every layer permuted as a whole. The order that restores T is named.

    ## Why output turns to garbage
    Six of eight neighbours in every word are at another place. Sums still have the right size, so nothing overflows and
    no number looks wrong by itself.

    ## What you will see
    Tokens of many scripts in no order. One layer of thirty alone (KL 0.53) still answers "Paris".

    ## How to tell it from its look-alikes
    Channels are divided by their rms first, so that what AWQ and SmoothQuant fold into norms does not look like an
    order. Rotary partners resemble each other in q and k, and are left out. Untrained weights have T = 1: the rule is
    then skipped, since nothing can be told. v, o and gate of layer 0 are nearly unrelated in healthy models too. An
    order of both q and k rows alike cannot be seen.

    ## How to confirm
    Dequantise the named module and its partner, and compare T before and after moving columns (or rows) into the named
    order. With `--reference` WGT228 names the same modules.

    ## How to repair it
    If all modules are in that order: write the label that says so (`quant_method`, `pack_method`, version), or pack
    again. If only some are: move their codes, and zero points packed like them, into place. A permutation loses
    nothing, but the evidence is statistical: not unattended.

    ## References
    amd/Quark#30, vllm-project/vllm#48552, vllm-project/vllm#2874, casper-hansen/AutoAWQ#101, sgl-project/sglang#23625
    """
    is_config = is_in_config(pack_orders.num_misordered, pack_orders.num_blocks, declaration)
    for one in pack_orders.misorders:
        yield _finding(one, declaration if is_config else None)


def _finding(one: Misorder, declaration: Declaration | None) -> Finding:
    place = one.module.place() if declaration is None else config_place(declaration, one.module, "label")
    order = " ".join(map(str, one.places))
    other = f" (or those of {one.or_module} in the inverse order)" if one.or_module else ""
    return Finding(
        location=place,
        message=f"{one.module.any_part.name}: every {len(one.places)} {one.side} lie in the order {order}{other}: put "
        f"back, rows agree with {one.partner} at T = {one.restored:.1f}, as stored at {one.stored:.1f} (1 is chance)",
        measured={
            "alignment": round(one.stored, 2),
            "alignment_reordered": round(one.restored, 2),
            "deviations": round(one.deviations, 1),
            "order": order,
            "axis": one.side,
        },
        bound={"deviations_max": MIN_DEVIATIONS, "ratio_max": MIN_RATIO},
        fix=Fix(id="repack-codes", safe=False),
        fold="pack order",
    )
