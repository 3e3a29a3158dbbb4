"""RUN809: stop strings and control tokens in answers."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.finding import Finding, Location
from degarble.probe.control_text import find_control_text
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN809", level=Level.LIVE)
def stop_token_leaks(probe_run: ProbeRun) -> Iterator[Finding]:
    """An answer shows a stop string or the text of a control token.

    ## What it looks for
    Stop strings that hardly any text avoids (a letter, a space) must not be in the answer they were given for. No
    answer may hold the text of a control token: `<|im_end|>`, `<｜end▁of▁sentence｜>`, `</s>` at an end, and all
    special tokens of the tokenizer given with `--tokenizer`. What the prompt itself has is not counted. Exact.

    ## Why output turns to garbage
    The end of a turn is not what the engine takes for the end: the model goes on, plays the user's part too, and
    fills max_tokens.

    ## What you will see
    Role markers in the text, and answers that do not stop.

    ## How to tell it from its look-alikes
    A stop string that spans two chunks is the engine's matter too. Tags of HTML such as `<s>` count only at the very
    end or beginning.

    ## How to confirm
    `skip_special_tokens` false shows the ids; was the right end token sampled? Then the engine's list of ends is
    wrong.

    ## How to repair it
    TPL502 and TPL504 name the file: eos_token_id of generation_config.json and tokenizer_config.json. Not safe
    unattended.

    ## References
    research: symptoms, row 24
    """
    specials = probe_run.expected.special_texts if probe_run.expected is not None else ()
    for exchange, answer in probe_run.all_answers():
        stop = next((one for one in exchange.ask.stop if one in answer.text), None)
        control = find_control_text(answer.text, exchange.ask.prompt, specials)
        if stop is None and control is None:
            continue
        what = f"its stop string {stop!r}" if control is None else f"the control text {control[0]!r}"
        position = answer.text.find(stop) if control is None and stop is not None else control[1] if control else None
        yield Finding(
            location=Location(request=exchange.name, token=control[0] if control else None, position=position),
            message=f"{exchange.name} shows {what} at character {position}",
            measured={"position": position},
            fold="stop" if control is None else "control",
        )
