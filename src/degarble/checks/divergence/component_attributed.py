"""DIV903: a component whose exchange alone carries the damage."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.forward_pass import ForwardPass
from degarble.finding import Finding
from degarble.registry import Level, check


@check("DIV903", level=Level.FORWARD)
def component_attributed(forward_pass: ForwardPass) -> Iterator[Finding]:
    """Planted alone in the reference, a component reproduces the damage, and giving it back removes it.

    ## What it looks for
    Each component that the local tests name (DIV902) is put alone into the reference: the KL divergence at the end is what
    this fault costs. It is attributed where that is at least three times what honest rounding of the same module costs,
    and giving the reference's component to the candidate takes away at least half of it from the total. Exchanging
    components proves, it does not search: inside 4-bit noise, restoring layers finds the culprit 12 times in 32.

    ## Why output turns to garbage
    The named component computes something else than the model that was trained; everything behind it inherits the error.

    ## What you will see
    `planted_kl` in nats per token: healthy 4-bit rounding of a whole small model costs about 0.3 to 0.4, 0.02 for FP8.

    ## How to tell it from its look-alikes
    A finding of DIV902 without this one is a fault too weak to prove at the output, or one whose effect others hide. The
    first layer with an error at the output (DIV901) is often a victim.

    ## How to confirm
    Copy the named tensor from the reference into a copy of the candidate and compare again.

    ## How to repair it
    Quantise the named module again from the reference, or copy the named value. Safe unattended only if the reference is
    known to be the source.

    ## References
    vllm-project/llm-compressor#2102, arXiv 2504.09629 (local against inherited error)
    """
    for blame in forward_pass.blames:
        if not blame.proven or blame.planted_kl is None:
            continue
        measured = {"planted_kl": round(blame.planted_kl, 6), "total_kl": _short(blame.total_kl)}
        measured |= {"honest_kl": _short(blame.honest_kl), "restored_kl": _short(blame.restored_kl)}
        yield Finding(
            location=blame.places[0],
            places=blame.places if len(blame.places) > 1 else (),
            message=f"{blame.message}; alone in the reference it costs a KL divergence of {blame.planted_kl:.3g}",
            severity=blame.severity,
            measured={name: value for name, value in measured.items() if value is not None},
            damage=blame.planted_kl,
        )


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
