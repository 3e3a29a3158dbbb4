"""Plants TPL503: one marker of the template, or the text beside it, is spelt otherwise."""

from __future__ import annotations

from collections.abc import Callable

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.template_edit import rendered_of, write_template
from degarble.finding import Location
from degarble.templates.conversations import ASK_PROMPT
from degarble.templates.markers import MarkerTable
from degarble.tokenizer.known_tokens import KnownTokens


def _respell(patient: Patient, change: Callable[[str], str]) -> Location:
    """Spell one marker otherwise wherever the template writes it; other markers tell the family as before."""
    template = rendered_of(patient).template
    markers: MarkerTable | None = patient.evidence.find("markers")
    known: KnownTokens | None = patient.evidence.find("known_tokens")
    if markers is None or known is None:
        raise NotApplicable("no tokenizer")
    written = sorted(
        text
        for text in markers.tokens
        if len(text) > 4 and text[0] == "<" and text in template.text and change(text) not in markers
    )
    marker = patient.pick(text for text in written if change(text) != text)
    return write_template(patient, template, template.text.replace(marker, change(marker)))


@fault("TPL503")
def template_token_not_special(patient: Patient) -> Location:
    """Exchange two letters inside a marker."""
    return _respell(patient, lambda text: text[:-4] + text[-3] + text[-4] + text[-2:])


@fault("TPL503")
def template_marker_in_ascii(patient: Patient) -> Location:
    """Write full-width pipes and low lines of a marker in ASCII, as NFKC and web forms do."""
    return _respell(patient, lambda text: text.replace("｜", "|").replace("▁", "_"))


@fault("TPL503")
def template_marker_full_width(patient: Patient) -> Location:
    """Write the pipes of a marker in full width."""
    return _respell(patient, lambda text: text.replace("|", "｜"))


@fault("TPL503")
def template_marker_with_zero_width(patient: Patient) -> Location:
    """Put a zero-width space into a marker."""
    return _respell(patient, lambda text: text[:3] + "\u200b" + text[3:])


@fault("TPL503")
def template_marker_unclosed(patient: Patient) -> Location:
    """Lose the last character of a marker."""
    return _respell(patient, lambda text: text[:-1] if text.endswith(("|>", "｜>")) else text)


@fault("TPL503")
def template_marker_in_capitals(patient: Patient) -> Location:
    """Write a marker in capitals."""
    return _respell(patient, str.upper)


def _reline(patient: Patient, written: str) -> Location:
    """Write something else for every line break. Raises NotApplicable where the template writes none."""
    tried = rendered_of(patient)
    if "\n" not in (tried.text(ASK_PROMPT) or ""):
        raise NotApplicable("no line break is written")
    text = "{% filter replace('\\n', '" + written + "') %}" + tried.template.text + "{% endfilter %}"
    return write_template(patient, tried.template, text)


@fault("TPL503")
def template_newline_escaped_twice(patient: Patient) -> Location:
    """Write a backslash and an n for every line break, as a template that was escaped twice does."""
    return _reline(patient, "\\\\n")


@fault("TPL503")
def template_carriage_returns(patient: Patient) -> Location:
    """Write carriage returns before line breaks."""
    return _reline(patient, "\\r\\n")


@fault("TPL503")
def template_no_break_spaces(patient: Patient) -> Location:
    """Write a no-break space before every line break."""
    return _reline(patient, "\u00a0\\n")


@fault("TPL503")
def template_byte_order_mark(patient: Patient) -> Location:
    """Begin the template with a byte order mark, as some editors do."""
    template = rendered_of(patient).template
    return write_template(patient, template, "\ufeff" + template.text)
