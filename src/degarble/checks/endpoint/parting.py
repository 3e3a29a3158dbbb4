"""What RUN806 and RUN807 say of a greedy answer that parts from another one to the same prompt."""

from __future__ import annotations

from degarble.finding import Confidence, Finding, Location
from degarble.probe.exchange import Exchange
from degarble.probe.greedy_difference import BOUND_NATS, Difference
from degarble.probe.probe_run import ProbeRun


def parted(
    run: ProbeRun,
    asked: Exchange,
    found: Difference,
    other: str,
    counts: tuple[int, int],
    fold: str,
    confidence: Confidence | None = None,
) -> Finding:
    """`other`: which answer it parts from. `counts`: prompts that differ, prompts that were asked."""
    behind = f", {found.nats:.2f} nats away" if found.nats is not None else ""
    return Finding(
        location=Location(request=asked.name, position=found.position),
        message=f"{asked.name} parts from {other} at position {found.position}: "
        f"{run.quote(found.other)} for {run.quote(found.one)}{behind}",
        confidence=confidence,
        measured={"nats": found.nats, "differing": counts[0], "asked": counts[1]},
        bound={"nats": BOUND_NATS},
        fold=fold,
    )
