"""NUM307: an error that is not distributed as rounding would make it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from degarble.evidence.forward_pass import ForwardPass, Stray
from degarble.finding import Confidence, Finding
from degarble.registry import Level, check

MIN_COVERAGE, MAX_Z, MAX_ROW_Z = 0.90, 1.3, 6.5
ALONE_Z, CORROBORATED = 1.6, 1.05
"""Searched scales clip what the largest activations meet: below the first, z and coverage count only where the weights
differ as well."""
MANY_LAYERS, MANY_SHARE = 3, 0.6
"""The same module strays in so many layers, and in such a share of them: one finding for all."""


@check("NUM307", confidence=Confidence.LIKELY, level=Level.FORWARD, symptom_of=("DIV903", "DIV902", "NUM306"))
def error_outside_bound(forward_pass: ForwardPass) -> Iterator[Finding]:
    """A module's error does not have the size and spread that honest rounding gives it.

    ## What it looks for
    Rounding is the one error whose distribution is known beforehand: from the stored scales and the module's own input
    follows a standard deviation sigma for every output, and of honest rounding 95.4 % lie within two of them. Reported
    where fewer than 90 % do, where z = rms(error / sigma) is above 1.3, or where one row has z above 6.5. Deterministic
    bounds are no test: they hold for almost every fault as well. Healthy files: see the page on error bounds.

    ## Why output turns to garbage
    The error has another source than rounding: a zero point off by one, a scale of another group, codes in another order.

    ## What you will see
    Often nothing: a single module of this kind stays below healthy 4-bit noise at the output.

    ## How to tell it from its look-alikes
    Error compensation (GPTQ) shapes its error by data and has z up to 1.6 by design: such modules are not judged, nor are
    schemes whose scales the file does not tell. z far below 1 is no fault: the reference was on the grid already.

    ## How to confirm
    `degarble compare --bounds` prints coverage, z and every bound by role of module; dequantise the module, subtract the
    reference's and divide by the scale: honest rounding is uniform in ±0.5.

    ## How to repair it
    Quantise the module again from the reference. Not safe unattended: it presumes that the reference is what was quantised.

    ## References
    arXiv 1906.10465 (probabilistic rounding bounds), vllm-project/llm-compressor#1765
    """
    outside = [one for one in forward_pass.strays if _is_outside(one)]
    by_kind: defaultdict[str, list[Stray]] = defaultdict(list)
    for one in outside:
        by_kind[one.kind].append(one)
    for kind, members in by_kind.items():
        judged = sum(one.kind == kind for one in forward_pass.strays)
        if len(members) >= MANY_LAYERS and len(members) >= MANY_SHARE * judged:
            yield _finding(sorted(members, key=lambda one: -one.z))
        else:
            yield from (_finding([one]) for one in members)


def _is_outside(one: Stray) -> bool:
    if one.row_z > MAX_ROW_Z or one.z > ALONE_Z:
        return True
    return one.weight_z > CORROBORATED and (one.coverage < MIN_COVERAGE or one.z > MAX_Z)


def _finding(members: Sequence[Stray]) -> Finding:
    worst = members[0]
    name = worst.module if len(members) == 1 else f"{worst.kind.rpartition('.')[2]} of {len(members)} layers"
    text = f"{name}: {worst.coverage:.1%} of its error is within two sigma of honest rounding, expected 95.4 %"
    if worst.row_z > MAX_ROW_Z and worst.coverage >= MIN_COVERAGE:
        text = f"{name}: row {worst.row} has {worst.row_z:.3g} times the error of honest rounding"
    return Finding(
        location=worst.location,
        places=tuple(one.location for one in members) if len(members) > 1 else (),
        message=f"{text} (z {worst.z:.3g})",
        measured={"coverage_2_sigma": round(worst.coverage, 4), "z": round(worst.z, 4), "row_z": round(worst.row_z, 4)},
        bound={"coverage_min": MIN_COVERAGE, "z_max": MAX_Z, "row_z_max": MAX_ROW_Z},
    )
