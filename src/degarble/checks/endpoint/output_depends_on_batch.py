"""RUN806: greedy answers that change in company."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.endpoint.parting import parted
from degarble.errors import EvidenceUnjudged
from degarble.finding import Confidence, Finding, Severity
from degarble.probe.batches import AGAIN, ALONE, TOGETHER
from degarble.probe.greedy_difference import greedy_difference
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN806", severity=Severity.WARNING, confidence=Confidence.LIKELY, level=Level.LIVE, symptom_of=("RUN801",))
def output_depends_on_batch(probe_run: ProbeRun) -> Iterator[Finding]:
    """A greedy answer depends on which other requests are computed with it.

    ## What it looks for
    Eight prompts alone, once more alone, then side by side. Answers differ beyond rounding where the other token was
    more than 0.25 nats behind, or a log probability jumps by as much; rounding of batched kernels moves it by less
    than 0.05. Where the two rounds alone differ already, nothing is said of batches. Without log probabilities at
    least half of the answers have to differ and the rounds alone must be equal; that is a hint.

    ## Why output turns to garbage
    Padding, position ids, a stale row of another request's values or a batch index in a quantised cache reach the
    wrong sequence.

    ## What you will see
    Good answers in tests, garbage under load.

    ## How to tell it from its look-alikes
    Near ties fall the other way with the shape of a batch: small differences of log probabilities are healthy, and no
    finding.

    ## How to confirm
    Send one prompt eight times at once and compare; then run the engine eagerly, without graphs.

    ## How to repair it
    Switch off what differs (graphs, padding, quantised cache) one by one. Not safe unattended.

    ## References
    research: symptoms, row 12; turboderp/exllamav3#91
    """
    alone, again = ({one.label: answer for one, answer in probe_run.of("batches", group)} for group in (ALONE, AGAIN))
    noise = {label: greedy_difference(alone[label], again[label]) for label in alone.keys() & again.keys()}
    if any(found is not None and found.is_beyond() for found in noise.values()):
        raise EvidenceUnjudged("greedy answers differ without any company, so that a batch cannot be blamed")
    together = [(one, answer) for one, answer in probe_run.of("batches", TOGETHER) if one.label in alone]
    pairs = [(one, found) for one, answer in together if (found := greedy_difference(alone[one.label], answer))]
    beyond = [(one, found) for one, found in pairs if found.is_beyond()]
    is_hint = not beyond and not any(noise.values()) and all(found.nats is None for _, found in pairs)
    if is_hint and 2 * len(pairs) >= max(4, len(together)):
        beyond = pairs
    counts = len(beyond), len(together)
    for one, found in beyond:
        yield parted(
            probe_run,
            one,
            found,
            "the answer alone",
            counts,
            "batch",
            Confidence.HINT if is_hint else Confidence.LIKELY,
        )
