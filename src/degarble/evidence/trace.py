"""Evidence from a KV-cache trace: the verdict of its replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from degarble.checkpoint.interface import Source
from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@provides("trace")
def trace(source: Source) -> Verdict:
    """What the replay found. Nothing of the trace is loaded for other targets."""
    from degarble.trace.source import TraceSource

    if not isinstance(source, TraceSource):
        raise EvidenceMissing("no trace given")
    return source.verdict
