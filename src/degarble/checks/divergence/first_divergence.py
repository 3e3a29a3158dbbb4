"""DIV901: the first layer that leaves the noise floor."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.forward_pass import ForwardPass
from degarble.finding import Finding, Severity
from degarble.registry import Level, check


@check("DIV901", severity=Severity.INFO, level=Level.FORWARD)
def first_divergence(forward_pass: ForwardPass) -> Iterator[Finding]:
    """From this layer on the candidate's hidden states differ from the reference's by more than noise.

    ## What it looks for
    Both models run on the same token ids. The noise floor is measured: the reference once more, its hidden states rounded
    to its own dtype between layers. Named is the first layer whose relative error is above three times the floor.

    ## Why output turns to garbage
    It is where the difference becomes visible, not where it is made: a quantised model leaves the floor at layer 0.

    ## What you will see
    Nothing by itself. In an unquantised copy it leads to the fault at once.

    ## How to tell it from its look-alikes
    DIV902 and DIV903 name the component; this is the place that a dumper would show.

    ## How to confirm
    The table of layers in the JSON report (`comparison.layers`) has the error behind every layer.

    ## How to repair it
    Nothing to repair: follow the causes above it.

    ## References
    sgl-project/sglang (debug dumper), arXiv 2504.09629
    """
    found = forward_pass.departure
    if found is not None:
        yield Finding(
            location=found.location,
            message=f"layer {found.location.layer} is the first to leave the noise floor: relative error {found.error:.3g} "
            f"against {found.floor:.3g}",
            measured={"relative_error": found.error},
            bound={"noise_floor": found.floor},
        )
