"""RUN801: answers that only logits without numbers give."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.finding import Confidence, Finding, Location
from degarble.probe.nan_signature import find_signature
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN801", level=Level.LIVE)
def nan_signature(probe_run: ProbeRun) -> Iterator[Finding]:
    """An answer that comes of logits that are no numbers.

    ## What it looks for
    The log probability of a sampled token is null, NaN or infinite: that is proof. Or the whole answer is one id of
    {0, size of the vocabulary, last of a kernel's block such as 8191}, nothing but exclamation marks, or max_tokens
    tokens without any text: that is a finding where two unrelated prompts give it.

    ## Why output turns to garbage
    NaN in one activation reaches every later layer. A sampler that takes the largest of NaNs takes the same id every
    time: id 0 is "!" in many vocabularies, an invisible token in others.

    ## What you will see
    Rows of `!!!!`, or empty answers with the finish reason `length` that cost all their tokens.

    ## How to tell it from its look-alikes
    Reasoning models may put all they say into a field of its own, which is no empty answer. An answer that a prompt
    asks for is not looked at: no probe asks for exclamation marks. Servers that replace NaN by zeros give random
    tokens of all scripts, and nothing here sees that; compare with a reference (RUN812).

    ## How to confirm
    Ask for one token with `logprobs`. Serve in bfloat16 or float32: if that cures it, fp16 overflowed. Run `degarble
    check` on the checkpoint: NaN in a scale is found there.

    ## How to repair it
    NUM302 and WGT201 name the tensor. In vLLM, VLLM_COMPUTE_NANS_IN_LOGITS=1 counts such requests. Nothing is safe to
    change unattended on a live endpoint.

    ## References
    vllm-project/vllm#19022, vllm-project/vllm#53029, jundot/omlx#2255
    """
    found = [
        (exchange, sign)
        for exchange, _ in probe_run.all_answers()
        if (sign := find_signature(exchange, _ids(probe_run)))
    ]
    is_proven = any(sign.is_proof for _, sign in found)
    prompts = {exchange.ask.prompt for exchange, _ in found}
    if not is_proven and len(prompts) < 2:
        return
    for exchange, sign in found:
        yield Finding(
            location=Location(request=exchange.name, position=sign.position, token_id=sign.token_id),
            message=f"{exchange.name}: {sign.text}",
            confidence=Confidence.PROVEN if sign.is_proof else Confidence.LIKELY,
            measured={"requests": len(found)},
            bound={"requests": 0},
            fold="nan",
        )


def _ids(probe_run: ProbeRun) -> int | None:
    return probe_run.expected.num_ids if probe_run.expected is not None else None
