"""KVC610: a graph is replayed with other addresses or constants than it was captured with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC610", level=Level.LIVE, symptom_of=("KVC623",))
def graph_holds_freed_block(trace: Verdict) -> Iterator[Finding]:
    """A graph is replayed with other addresses or constants than it was captured with.

    ## What it looks for
    Every replay against its capture: pointers, constants and number of rows by name, and that the graph was
    captured and not dropped. Names that only one side tells are not compared. Exact.

    ## Why output turns to garbage
    A replay uses what was baked in at capture: it reads and writes memory that belongs to someone else by now.

    ## What you will see
    Correct text in eager mode, damage with graphs; perplexity nearly doubles without an error.

    ## How to tell it from its look-alikes
    Different graphs may share one buffer. A recapture under the same id replaces the old one.

    ## How to confirm
    Run with graphs off (`--enforce-eager`).

    ## How to repair it
    Keep the captured buffers alive and in place, and put changing scalars into device buffers or the graph's key.

    ## References
    lightseekorg/tokenspeed#667, kekzl/imp#986, ikawrakow/ik_llama.cpp#2136
    """
    return broken(trace, "KVC610", "graph")
