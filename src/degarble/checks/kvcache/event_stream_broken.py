"""KVC623: the trace itself is damaged: a gap, an unreadable line, or an event that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding, Location, Severity
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC623", level=Level.LIVE)
def event_stream_broken(trace: Verdict) -> Iterator[Finding]:
    """The trace itself is damaged: a gap, an unreadable line, or an event that cannot be.

    ## What it looks for
    Counters without gaps; every line an object with its required fields and types; meta first; events of live
    requests only; ends that have a beginning; evictions that have a store. Unknown events are named once, as
    information. Exact. Checking goes on where it can, so later findings may follow from what is missing.

    ## Why output turns to garbage
    A cache index outside the engine (router, offload) that loses events serves blocks that are not there.

    ## What you will see
    Findings about everything that the missing events would have explained.

    ## How to tell it from its look-alikes
    A trace that ends early is silent. Unknown fields and events are allowed. Two stored copies of a hash have an
    eviction each.

    ## How to confirm
    Compare the counter at both ends of the gap with the writer's log.

    ## How to repair it
    Record again; write whole steps at once.

    ## References
    ai-dynamo/dynamo#8012, llm-d/llm-d-kv-cache#680, ai-dynamo/dynamo#7463
    """
    yield from broken(trace, "KVC623")
    for event, line in trace.unknown.items():
        yield Finding(
            location=Location(line=line),
            message=f"the schema has no event {event!r}; events of this name are not judged",
            severity=Severity.INFO,
        )
