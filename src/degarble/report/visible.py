"""Text from hostile files made safe to show: what cannot be seen is spelled out, what is too long is cut.

Control characters move a terminal's cursor, direction overrides make `exe.nosj` out of `json.exe`, lone surrogates
cannot be written at all, and a name may have ten million characters. Whatever Python does not call printable (controls,
formats, surrogates, private use, unassigned, odd spaces) becomes its escape: `\\x1b`, `\\u202e`. Only the JSON writer does
without: names there are data, and JSON has an escape of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import msgspec

from degarble.diagnosis import Cause
from degarble.finding import Finding, Location, Measure, Scalar
from degarble.policy.waivers import Waiver
from degarble.report.interface import Report, Target, Words
from degarble.runner import RuleResult

MAX_NAME = 500
"""Characters of a name: longer than any real tensor, key or token."""
MAX_TEXT = 4_000
"""Characters of a message or a reason."""
MAX_ITEMS = 64
"""Entries of what was measured, and of a list in it."""


def visible(text: str, limit: int = MAX_NAME) -> str:
    """One line that shows every character; the middle is left out beyond `limit` characters."""
    if len(text) > limit:
        cut = f" … {len(text):,} characters … "
        room = max(0, limit - len(cut))
        text = text[: room - room // 4] + cut + text[len(text) - room // 4 :]
    return text if text.isprintable() else "".join(map(_spelled, text))


def visible_lines(text: str, limit: int = MAX_TEXT) -> str:
    """The same for a message, whose line ends stay."""
    if len(text) <= limit and text.isprintable():
        return text
    return "\n".join(visible(line, limit) for line in text[: 2 * limit].split("\n")[:MAX_ITEMS])


def _spelled(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_report(report: Report) -> Report:
    """A copy in which every text can be shown. The profile stays: who draws it shows its names."""
    shown = {id(finding): visible_finding(finding) for finding in report.findings}

    def one(finding: Finding) -> Finding:
        return shown.get(id(finding)) or visible_finding(finding)

    return replace(
        report,
        target=Target(
            path=visible(report.target.path, MAX_TEXT),
            kind=visible(report.target.kind),
            formats=tuple(map(visible, report.target.formats)),
        ),
        findings=tuple(shown[id(finding)] for finding in report.findings),
        causes=tuple(Cause(finding=one(c.finding), symptoms=tuple(map(one, c.symptoms))) for c in report.causes),
        results=tuple(map(_result, report.results)),
        accepted=tuple(map(visible_finding, report.accepted)),
        waivers=tuple((_waiver(waiver), state) for waiver, state in report.waivers),
        unjudged={visible_lines(what): visible_lines(reason) for what, reason in report.unjudged.items()},
        failure=None if report.failure is None else visible_lines(report.failure),
        version=visible(report.version),
        words={visible(rule): _words(words) for rule, words in report.words.items()},
    )


def visible_finding(finding: Finding) -> Finding:
    """A finding whose every text can be shown. Its fingerprint stays that of the true names."""
    if _is_plain(finding):
        return finding
    accepted = finding.accepted
    return replace(
        finding,
        location=_location(finding.location),
        message=visible_lines(finding.message),
        measured=_measures(finding.measured),
        bound=_measures(finding.bound),
        predicts=None if finding.predicts is None else visible_lines(finding.predicts),
        accepted=None if accepted is None else replace(accepted, reason=visible_lines(accepted.reason)),
        fix=None if finding.fix is None else replace(finding.fix, id=visible(finding.fix.id)),
        rule=visible(finding.rule),
        name=visible(finding.name),
        places=tuple(_location(place) for place in finding.places[: MAX_ITEMS + 1])
        + finding.places[MAX_ITEMS + 1 :],  # nobody names those
        saved_fingerprint=finding.fingerprint,
    )


def _is_plain(finding: Finding) -> bool:
    """The common case, told by one look at all of it."""
    place = finding.location
    if finding.places or finding.predicts or finding.accepted or len(finding.message) > MAX_NAME:
        return False
    values = [*finding.measured.values(), *finding.bound.values()]
    if len(values) > MAX_ITEMS or not all(type(v) is int or (type(v) is float and math.isfinite(v)) for v in values):
        return False
    fix = finding.fix.id if finding.fix is not None else ""
    texts = (place.file, place.key, place.tensor, place.module, place.token, place.request, finding.name, fix)
    joined = "".join([text for text in texts if text]) + finding.message + "".join([*finding.measured, *finding.bound])
    return len(joined) - len(finding.message) <= MAX_NAME and joined.isprintable()


def _location(place: Location) -> Location:
    changed: dict[str, Any] = {
        each.name: visible(value) for each in fields(place) if isinstance(value := getattr(place, each.name), str)
    }
    return replace(place, **changed)


def _measures(values: Mapping[str, Measure]) -> dict[str, Measure]:
    return {visible(str(name)): _measure(value) for name, value in list(values.items())[:MAX_ITEMS]}


def _measure(value: Measure) -> Measure:
    if isinstance(value, list):
        return [_scalar(item) for item in value[:MAX_ITEMS]]
    return _scalar(value)


def _scalar(value: Scalar) -> Scalar:
    """Also floats that JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return visible(value) if isinstance(value, str) else value


def _result(result: RuleResult) -> RuleResult:
    if result.reason is None or (len(result.reason) <= MAX_TEXT and result.reason.isprintable()):
        return result
    return replace(result, reason=visible_lines(result.reason))


def _waiver(waiver: Waiver) -> Waiver:
    return msgspec.structs.replace(
        waiver, rule=visible(waiver.rule), scope=visible(waiver.scope), reason=visible_lines(waiver.reason)
    )


def _words(words: Words) -> Words:
    return Words(**{part: visible_lines(getattr(words, part)) for part in Words.__struct_fields__})
