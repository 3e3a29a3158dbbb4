"""Evidence from a KV-cache trace: the verdict of its replay."""

from __future__ import annotations

from degarble.checkpoint.interface import Source
from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides
from degarble.trace.replay import Verdict
from degarble.trace.source import TraceSource


@provides("trace")
def trace(source: Source) -> Verdict:
    """What the replay found."""
    if not isinstance(source, TraceSource):
        raise EvidenceMissing("no trace given")
    return source.verdict
