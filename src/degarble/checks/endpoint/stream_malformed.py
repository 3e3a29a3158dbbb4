"""RUN810: streams that careful clients cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.finding import Finding, Location
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN810", level=Level.LIVE)
def stream_malformed(probe_run: ProbeRun) -> Iterator[Finding]:
    """A stream breaks the form of server-sent events or of OpenAI's chunks.

    ## What it looks for
    Content type, UTF-8, `data:` lines with an empty line behind each event, JSON with `choices`, one id for all
    chunks of an answer, no text after the finish reason, nothing after `[DONE]`. Exact.

    ## Why output turns to garbage
    Clients lose or double the pieces that they cannot read; characters that were cut into two chunks become
    replacement characters.

    ## What you will see
    Missing words, half characters, clients that raise errors in the middle of an answer.

    ## How to tell it from its look-alikes
    A chunk that ends inside a network packet is no breach: the stream is read as a whole. Comments, and chunks
    without choices that tell the usage, are allowed.

    ## How to confirm
    `curl -N` with the same body; the finding names the line of the stream.

    ## How to repair it
    Ask the engine past its gateway: a proxy that re-chunks or compresses is the usual culprit. Not safe unattended.

    ## References
    WHATWG HTML: server-sent events; research: conventions of clients
    """
    streams = [(one, one.stream) for one, _ in probe_run.of("streams", "stream") if one.stream is not None]
    for one, stream in streams:
        for breach in stream.breaches[:1]:
            found = probe_run.quote(breach.found)
            yield Finding(
                location=Location(request=one.name, position=breach.line),
                message=f"{one.name}, line {breach.line} of the stream: {breach.what}: expected {breach.expected}, found {found}",
                measured={"breaches": len(stream.breaches), "chunks": stream.num_chunks},
                bound={"breaches": 0},
                fold="stream",
            )
