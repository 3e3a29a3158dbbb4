"""RUN807: answers that change when the prompt is in the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.endpoint.parting import parted
from degarble.finding import Confidence, Finding
from degarble.probe.greedy_difference import greedy_difference
from degarble.probe.prefixes import AFTER, HIT, MISS
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN807", confidence=Confidence.LIKELY, level=Level.LIVE, symptom_of=("RUN801",))
def output_depends_on_prefix_cache(probe_run: ProbeRun) -> Iterator[Finding]:
    """A greedy answer changes when its prompt is found in the prefix cache.

    ## What it looks for
    Prompts of about 31 to 129 tokens with an unused salt in front: first time (miss), second time (hit), and again
    after others with the same beginning. Lengths lie at k x 16 - 1, k x 16 and k x 16 + 1. Answers differ beyond
    rounding as in RUN806. Without log probabilities two lengths have to differ.

    ## Why output turns to garbage
    A block of the cache that is stale, shared with another text, hashed without its salt, or a full hit that leaves
    no token to compute: attention reads another text.

    ## What you will see
    The first answer is right; the same question a minute later is not.

    ## How to tell it from its look-alikes
    A server that is not reproducible at all differs here and alone in RUN806's two rounds, and RUN806 is skipped
    then. Cached and computed prompts differ by rounding: less than 0.05 nats.

    ## How to confirm
    Repeat with another salt in front, and with the prefix cache switched off.

    ## How to repair it
    KVC605, KVC625 and KVC627 name the event in a trace (`degarble trace`). Switching the cache off is a stopgap.

    ## References
    GeeeekExplorer/nano-vllm#144, vllm-project/vllm#41838
    """
    first = {one.label: answer for one, answer in probe_run.of("prefixes", MISS)}
    later = [pair for group in (HIT, AFTER) for pair in probe_run.of("prefixes", group) if pair[0].label in first]
    pairs = [(one, found) for one, answer in later if (found := greedy_difference(first[one.label], answer))]
    beyond = [(one, found) for one, found in pairs if found.is_beyond()]
    if not beyond and all(found.nats is None for _, found in pairs) and len({one.label for one, _ in pairs}) > 1:
        beyond = pairs
    counts = len(beyond), len(later)
    for one, found in beyond:
        yield parted(probe_run, one, found, "the first answer", counts, "prefix")
