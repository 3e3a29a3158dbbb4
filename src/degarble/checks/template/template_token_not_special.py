"""TPL503: what a chat template writes around a turn is not the token it stands for."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.template.template_place import FETCH, place_of, title_of
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.registry import check
from degarble.templates.markers import BadMarker, Fault, MarkerTable
from degarble.templates.odd_text import odd_texts
from degarble.templates.renderings import TemplateRenderings
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.look_alike import code_points

SPELL = Fix(id="spell-marker-as-token", safe=True)
MAX_SHOWN = 80


@check("TPL503", symptom_of=("TOK401", "TOK404", "TOK405", "TOK406", "TOK413", "TPL502"))
def template_token_not_special(
    renderings: tuple[TemplateRenderings, ...], markers: MarkerTable, known_tokens: KnownTokens
) -> Iterator[Finding]:
    """A marker that the chat template writes is not one token of the tokenizer.

    ## What it looks for
    Every marker in what the template writes for plain conversations and for tools, and in its branches that these do
    not reach (those are a warning). Names between pipes (`<|im_end|>`, `<｜User｜>`, `<|turn>`) and the known tags of
    turns (`<start_of_turn>`, `<s>`) have to be added tokens, found as a whole; `[INST]` and XML tags only if their
    counterpart is one. Markers that look like a token and are another text are named with the code points that differ:
    ASCII for full-width pipes, `_` for `▁`, characters that cannot be seen, a missing bracket, another case. Around
    markers and messages, text that nobody meant is reported too: a backslash and an n where a line break should be,
    carriage returns, no-break and zero-width spaces. For the model that is the same fault: a token of the turn, there
    the line break, is replaced by others.

    ## Why output turns to garbage
    A marker that is no token is cut into five or ten ordinary ones, `<`, `|`, `im`, … The model sees words where it was
    trained to see one control token, at the most regular place of every prompt, and does not know whose turn it is.

    ## What you will see
    Answers that ignore the question's form, repeat the markers as text, or go on in the user's name; short answers may
    look right. The prompt has several tokens more than it should.

    ## How to tell it from its look-alikes
    Plain-text markup is often meant: Qwen 3's `<tools>`, Llama 2's `[INST]` and `<<SYS>>`, the `<|user|>` of Zephyr,
    Tulu and OLMo on tokenizers that know no such token. These are silent. Markers that are added and not special, such
    as DeepSeek's `<｜User｜>`, are one token, which is all that counts here. If all markers are unknown, the template is
    of another family: TOK413. A token that the vocabulary has, stored as ordinary text, is TOK405.

    ## How to confirm
    Encode the marker alone with the tokenizer file: it must be one id.

    ## How to repair it
    Write the marker as the tokenizer has it. Safe unattended for look-alikes of exactly one token; otherwise fetch the
    template of the release.

    ## References
    ggml-org/llama.cpp#7062, unslothai/unsloth#5080, ggml-org/llama.cpp#8228
    """
    for tried in renderings:
        written: dict[str, BadMarker] = {}
        for result in tried.results.values():
            if result.text is not None and result.is_whole:
                written |= {bad.text: bad for bad in markers.bad_markers(result.text)}
        hidden = {bad.text: bad for text in tried.source.written for bad in markers.bad_markers(text)}
        for bad in written.values():
            yield _finding(tried, bad, known_tokens, "writes", None)
        for bad in hidden.values():
            if bad.text not in written:
                yield _finding(tried, bad, known_tokens, "writes, in a branch of its own,", Severity.WARNING)


@check("TPL503", confidence=Confidence.LIKELY, symptom_of=("TPL502",))
def template_text_odd(renderings: tuple[TemplateRenderings, ...]) -> Iterator[Finding]:
    """Escapes that were typed twice, and characters that cannot be seen, next to markers and messages."""
    for tried in renderings:
        seen: set[str] = set()
        for _, text in tried.plain_texts():
            for odd in odd_texts(text):
                if odd.text not in seen:
                    seen.add(odd.text)
                    yield Finding(
                        location=place_of(tried.template),
                        message=f"{title_of(tried.template)} writes {odd.name}: {odd.around!r}",
                        measured={"text": odd.text},
                        bound={"text": "a line break or nothing"},
                        fix=FETCH,
                        fold=f"odd text {tried.template.file} {tried.template.key}",
                    )


def _finding(
    tried: TemplateRenderings, bad: BadMarker, known: KnownTokens, does: str, severity: Severity | None
) -> Finding:
    shown = bad.text[:MAX_SHOWN]
    meant = ""
    if bad.similar is not None:
        meant = f"; {known.tokenizer.file} has {bad.similar[:MAX_SHOWN]!r} (id {known.id_of(bad.similar)})"
    if bad.fault is Fault.LOOK_ALIKE and bad.similar is not None:
        meant += f", {code_points(bad.similar)} there and {code_points(bad.text)} here"
    if bad.fault is Fault.WIDOWED:
        severity = Severity.WARNING
    return Finding(
        location=place_of(tried.template, token=shown),
        places=(place_of(tried.template, token=shown), place_of(tried.template)),
        message=f"{title_of(tried.template)} {does} {shown!r}, which {bad.fault}{meant}",
        severity=severity,
        measured={"ids": 0},
        bound={"ids": 1},
        fix=SPELL if bad.fault is Fault.LOOK_ALIKE else FETCH,
        fold=f"{tried.template.file} {tried.template.key} {does}",
    )
