"""RUN804: answers that do not say why they ended."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.finding import Finding, Location
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN804", level=Level.LIVE, symptom_of=("RUN810",))
def finish_reason_missing(probe_run: ProbeRun) -> Iterator[Finding]:
    """An answer ends without a finish reason, or a stream without `[DONE]`.

    ## What it looks for
    Every answer needs a finish reason, and every stream a chunk that has one, and `[DONE]` as its last event. Exact.

    ## Why output turns to garbage
    Clients cannot tell an answer that is over from one that was cut off: a lost end-of-sequence token or a proxy that
    breaks the connection looks like success. Some gateways write `stop` themselves and hide it.

    ## What you will see
    Answers that stop in the middle of a word and count as complete.

    ## How to tell it from its look-alikes
    Answers that our own bounds cut off are trouble of the probe and not judged here. A stream that is malformed
    anyway (RUN810) explains a lost end.

    ## How to confirm
    Ask the engine directly, past every gateway, with `stream` true.

    ## How to repair it
    Update the server or the proxy; look at its time-outs and buffer sizes. Not safe unattended.

    ## References
    research: conventions of clients; vllm-project/vllm#19662
    """
    for exchange, answer in probe_run.all_answers():
        lacks = [] if answer.finish_reason is not None else ["a finish reason"]
        if exchange.stream is not None and not exchange.stream.has_done:
            lacks.append("[DONE]")
        if lacks:
            yield Finding(
                location=Location(request=exchange.name),
                message=f"{exchange.name} ends without {' and '.join(lacks)}",
                measured={"missing": ", ".join(lacks)},
                fold="finish",
            )
