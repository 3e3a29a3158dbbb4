"""RUN803: text that was decoded wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.finding import Confidence, Finding, Location
from degarble.probe.exchange import Answer, Exchange
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check
from degarble.tokenizer.mojibake import find_mojibake

REPLACEMENT_CHAR = "\ufffd"
MIN_TRACES = 2
"""Unproven ones, before anything is said."""


@check("RUN803", level=Level.LIVE, symptom_of=("RUN801", "RUN810"))
def mojibake(probe_run: ProbeRun) -> Iterator[Finding]:
    """An answer holds text that was decoded wrongly, and its tokens do not explain it.

    ## What it looks for
    Replacement characters, byte tokens and pieces of a vocabulary shown as stored, UTF-8 read as Latin-1. Proven
    where the bytes that the endpoint tells beside its log probabilities spell another text, or where a stream has
    replacement characters and its unstreamed twin does not; else likely, from two traces in one answer or answers to
    two prompts on.

    ## Why output turns to garbage
    The ids are right and their bytes are joined or decoded wrongly: token by token, without the byte-level decoder,
    or twice.

    ## What you will see
    Squares and question marks in emoji and Chinese, `Ġ` between words, `Ã©` for `é`.

    ## How to tell it from its look-alikes
    An answer cut off at max_tokens may end inside a character: what stands at its very end is not counted. A model
    that really samples broken bytes is not blamed where its bytes are told. False alarms of the unproven part, two
    traces in a text: none in 1,639 Python, Markdown, JSON, reST and plain files of up to 6,000 characters, one of
    which has a single trace; 5 of 188 pages that explain mojibake. A model may write any of these on purpose; the
    probes' prompts do not ask for it.

    ## How to confirm
    Ask without streaming, and with `logprobs`: `bytes` there joined and decoded must be the text.

    ## How to repair it
    TOK408, TOK409 and TOK412 name the file; an engine that decodes token by token needs an update. Not safe
    unattended.

    ## References
    vllm-project/vllm, huggingface/text-generation-inference: incremental detokenization
    """
    found = [
        (exchange, kind, text, is_proven)
        for exchange, answer in probe_run.all_answers()
        for kind, text, is_proven in _traces(exchange, answer, probe_run)
    ]
    is_many = len({exchange.ask.prompt for exchange, *_ in found}) > 1 or len(found) >= MIN_TRACES
    for exchange, kind, text, is_proven in found:
        if is_proven or is_many:
            yield Finding(
                location=Location(request=exchange.name),
                message=f"{exchange.name}: {kind}: {probe_run.quote(text)}",
                confidence=Confidence.PROVEN if is_proven else Confidence.LIKELY,
                measured={"traces": len(found)},
                bound={"traces": 0},
                fold="mojibake",
            )


def _traces(exchange: Exchange, answer: Answer, probe_run: ProbeRun) -> Iterator[tuple[str, str, bool]]:
    told = told_text(answer)
    body = answer.text.rstrip(REPLACEMENT_CHAR) if answer.finish_reason == "length" else answer.text
    for trace in find_mojibake(body):
        if trace.text in exchange.ask.prompt or (told is not None and trace.text in told):
            continue
        twin = _twin(exchange, probe_run)
        is_new = twin is not None and trace.text not in twin.text and twin.text.startswith(answer.text[: trace.start])
        yield trace.kind, trace.text, told is not None or is_new


def told_text(answer: Answer) -> str | None:
    """What the bytes of the tokens spell; None where not every token has its bytes."""
    if not answer.scores or any(score.data is None for score in answer.scores):
        return None
    return b"".join(score.data or b"" for score in answer.scores).decode("utf-8", "replace")


def _twin(exchange: Exchange, probe_run: ProbeRun) -> Answer | None:
    """The unstreamed answer to a streamed question."""
    if not exchange.ask.is_stream:
        return None
    same = (one.answer for one in probe_run.exchanges if one.label == exchange.label and one.probe == exchange.probe)
    return next((answer for answer in same if answer is not None), None)
