"""DIV904: how far the outputs are apart, at every position."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.forward_pass import ForwardPass
from degarble.finding import Finding, Location, Severity
from degarble.registry import Level, check

MIN_KL = 1e-4
MAX_SHOWN = 5


@check("DIV904", severity=Severity.INFO, level=Level.FORWARD)
def top_token_disagreement(forward_pass: ForwardPass) -> Iterator[Finding]:
    """The candidate's next-token distributions are not the reference's.

    ## What it looks for
    KL divergence of reference to candidate in nats, and whether both would choose the same next token, at every position
    of the texts. Reported above 1e-4 nats in the mean and above ten times the noise floor.

    ## Why output turns to garbage
    This is the sum of everything that differs. Each disagreement is a place where greedy decoding goes another way.

    ## What you will see
    Healthy 4-bit rounding of a 135M model: 0.3 to 0.4 nats, four of five first choices equal; FP8 0.02.

    ## How to tell it from its look-alikes
    The first position of a text is fragile in every model. Other token ids would make the comparison meaningless, so both
    models read the reference's.

    ## How to confirm
    Ask both models for the next token at one of the named positions.

    ## How to repair it
    Nothing to repair by itself: see the causes. Without any, it is what the format costs.

    ## References
    arXiv 2407.09141 (answers change under compression at equal accuracy)
    """
    kl = forward_pass.kl
    if kl is None or kl <= max(MIN_KL, 10 * forward_pass.noise_kl):
        return
    worst = [f"{one.text!r} (text {one.sequence}, {one.kl:.2f})" for one in forward_pass.positions[:MAX_SHOWN]]
    yield Finding(
        location=Location(),
        message=f"KL divergence {kl:.3g} nats a token, the same first choice at "
        f"{forward_pass.top1_agreement or 0.0:.1%} of {forward_pass.num_positions} positions"
        + (f"; worst behind {', '.join(worst)}" if worst else ""),
        measured={
            "kl_divergence": kl,
            "top1_agreement": forward_pass.top1_agreement,
            "noise_kl": forward_pass.noise_kl,
        },
        bound={"kl_divergence": max(MIN_KL, 10 * forward_pass.noise_kl)},
    )
