"""RUN811: prompts that are not seen beyond a length."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.errors import EvidenceUnjudged
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.probe.ladder_quality import BAD, GOOD, find_collapse
from degarble.probe.length_ladder import rung_of
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN811", severity=Severity.WARNING, confidence=Confidence.LIKELY, level=Level.LIVE, symptom_of=("RUN801",))
def length_dependent_collapse(probe_run: ProbeRun) -> Iterator[Finding]:
    """Prompts beyond a length are not answered from their text any more.

    ## What it looks for
    Lists of 16 to 4096 random words that are to be continued or copied from their beginning. The share of words that
    come out right must not fall from 0.6 or more at every shorter length to 0.25 or less at every longer one; four
    more questions close in on the boundary. A decline in steps is no collapse. A model that copies nothing at any
    length cannot be judged this way.

    ## Why output turns to garbage
    Sliding windows, a table of rotary positions that is too short, 32-bit offsets, a chunk of the prompt read before
    it is written: each has its own length, and beyond it attention reads something else.

    ## What you will see
    Short questions are answered well, long documents give nonsense from the first word.

    ## How to tell it from its look-alikes
    A context that simply ends is a refusal with a message, and no finding. Small models grow worse slowly with
    length.

    ## How to confirm
    Ask with one token less and one more than the boundary that the finding names.

    ## How to repair it
    Compare the boundary with the window, original_max_position_embeddings and the chunk size in the engine's start-up
    log; CFG207 on the checkpoint. Not safe unattended.

    ## References
    research: symptoms, rows 8 to 10
    """
    rungs = [rung_of(one) for one, _ in probe_run.of("length-ladder")]
    if not any(rung.quality >= GOOD for rung in rungs):
        raise EvidenceUnjudged("no list of words was copied at any length, so that longer ones tell nothing")
    found = find_collapse(rungs)
    if found is None:
        return
    good, bad = found.good, found.bad
    yield Finding(
        location=Location(request=f"length-ladder/{bad.size}-words"),
        message=f"lists of {good.size} words ({good.prompt_tokens} tokens) are copied, those of {bad.size} words "
        f"({bad.prompt_tokens} tokens) and {found.num_bad - 1} longer are not",
        measured={"good_tokens": good.prompt_tokens, "bad_tokens": bad.prompt_tokens, "quality": round(bad.quality, 2)},
        bound={"good": GOOD, "bad": BAD},
    )
