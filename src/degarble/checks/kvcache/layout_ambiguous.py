"""KVC612: the shape of a cache tensor fits two layouts, and no axes are declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding, Severity
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC612", severity=Severity.INFO, level=Level.LIVE)
def layout_ambiguous(trace: Verdict) -> Iterator[Finding]:
    """The shape of a cache tensor fits two layouts, and no axes are declared.

    ## What it looks for
    Groups of key and value caches that declare a shape and no axes: all layouts of a catalogue of fifteen are tried
    with the declared sizes. More than one that fits is reported, as information.

    ## Why output turns to garbage
    Whoever infers the layout from the shape may guess wrong, for instance where num_kv_heads is 2 and looks like
    the K/V axis.

    ## What you will see
    Nothing, until an integration (offload, transfer) guesses.

    ## How to tell it from its look-alikes
    A group with axes is never ambiguous, and a latent cache has no heads to confuse.

    ## How to confirm
    Compare the readings that the finding lists.

    ## How to repair it
    Declare the axes by name.

    ## References
    LMCache/LMCache#4467, LMCache/LMCache#2495
    """
    return broken(trace, "KVC612", "meta")
