"""A saved JSON document back into a Report, so that every writer can render it again. Nothing in it is trusted."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from degarble.diagnosis import Cause
from degarble.errors import MalformedFile, UsageError
from degarble.finding import MAX_ALSO, Acceptance, Confidence, Finding, Fix, Location, Measure, Role, Severity
from degarble.policy.policy import WaiverState
from degarble.policy.waivers import Waiver
from degarble.report.interface import SCHEMA_VERSION, Report, Status, Target, Words
from degarble.runner import Outcome, RuleResult

MAX_BYTES = 1 << 29
"""A report with the profile of a 46,000-module checkpoint has a fifth of it."""
MAX_PLACES = 10_000_000

RuleId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Z]{3}[1-9][0-9]{2}\Z")]
FindingId = Annotated[str, msgspec.Meta(pattern=r"\Af[1-9][0-9]*\Z")]
Fingerprint = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Version(msgspec.Struct):
    schema_version: int


class _Tool(msgspec.Struct):
    version: str


class _Target(msgspec.Struct):
    path: str
    kind: str
    formats: list[str]


class _Also(msgspec.Struct):
    also: Annotated[list[str], msgspec.Meta(max_length=MAX_ALSO)] = []
    count: Annotated[int, msgspec.Meta(ge=2, le=MAX_PLACES)] | None = None


class _Fix(msgspec.Struct):
    id: str
    safe: bool


class _Acceptance(msgspec.Struct):
    kind: Literal["waiver", "baseline", "accepted number"]
    reason: str


class _Waiver(msgspec.Struct):
    rule: RuleId
    scope: str
    reason: str
    state: WaiverState
    expires: date | None = None


class _Place(msgspec.Struct, kw_only=True):
    """What every finding has, accepted or not."""

    rule: RuleId
    name: str
    severity: Severity
    confidence: Confidence
    role: Role
    location: dict[str, Any]
    message: str
    measured: dict[str, Measure]
    bound: dict[str, Measure]
    fingerprint: Fingerprint
    fix: _Fix | None = None


class _Finding(_Place, kw_only=True):
    id: FindingId


class _Accepted(_Place, kw_only=True):
    acceptance: _Acceptance


class _Cause(msgspec.Struct):
    finding: FindingId
    rule: RuleId
    symptoms: list[FindingId]
    story: str
    predicts: str
    confirm: str


class _Check(msgspec.Struct):
    rule: RuleId
    outcome: Outcome
    reason: str | None = None


class _Unjudged(msgspec.Struct):
    what: str
    reason: str


class _Document(msgspec.Struct):
    tool: _Tool
    target: _Target
    status: Status
    summary: dict[str, Count]
    causes: list[_Cause]
    findings: list[_Finding]
    checks: list[_Check]
    unjudged: list[_Unjudged]
    accepted: list[_Accepted] = []
    waivers: list[_Waiver] = []
    error: str | None = None
    profile: dict[str, Any] | None = None
    comparison: dict[str, Any] | None = None
    diagnosis: dict[str, Any] | None = None


def read_report(path: str) -> Report:
    """Read a saved report. Raises UsageError if there is no such file, MalformedFile if it is no report."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return load(data, path)


def load(data: bytes, file: str = "report") -> Report:
    """The report that a JSON document tells of. Raises MalformedFile with the place, the expected and the found."""
    if len(data) > MAX_BYTES:
        raise MalformedFile(file, "the whole file", f"at most {MAX_BYTES:,} bytes", "more")
    found = _decoded(data, _Version, file).schema_version
    if found != SCHEMA_VERSION:
        raise MalformedFile(file, "schema_version", str(SCHEMA_VERSION), f"{found}, of another degarble")
    document = _decoded(data, _Document, file)
    report = _report(document, file)
    _compare(file, "status", report.status.value, document.status.value)
    for key, number in report.summary.items():
        _compare(file, f"summary.{key}", str(number), str(document.summary.get(key)))
    return report


def _decoded(data: bytes, shape: type[T], file: str) -> T:
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise _malformed(file, "$", error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFile(file, "the whole file", "one JSON document", str(error)) from None


def _malformed(file: str, root: str, error: msgspec.ValidationError) -> MalformedFile:
    reason, _, place = str(error).partition(" - at ")
    return MalformedFile(file, root + place.strip("`").removeprefix("$"), "a degarble report", reason)


def _compare(file: str, place: str, expected: str, found: str) -> None:
    """What a report says of itself must follow from what is in it."""
    if expected != found:
        raise MalformedFile(file, place, f"{expected} by what the report lists", found)


def _report(document: _Document, file: str) -> Report:
    told = {cause.finding: cause.predicts for cause in document.causes}
    findings: dict[str, Finding] = {}
    for number, saved in enumerate(document.findings):
        if saved.id in findings:
            raise MalformedFile(file, f"$.findings[{number}].id", "an id of its own", saved.id)
        found = _finding(saved, f"$.findings[{number}].location", file)
        findings[saved.id] = replace(found, id=saved.id, predicts=told.get(saved.id) or None)
    words: dict[str, Words] = {}
    for cause in document.causes:
        if cause.story or cause.confirm:
            words.setdefault(cause.rule, Words(story=cause.story, confirm=cause.confirm))
    return Report(
        target=Target(path=document.target.path, kind=document.target.kind, formats=tuple(document.target.formats)),
        findings=tuple(findings.values()),
        causes=tuple(_cause(cause, findings, file) for cause in document.causes),
        results=tuple(
            RuleResult(rule=check.rule, outcome=check.outcome, reason=check.reason) for check in document.checks
        ),
        accepted=tuple(
            replace(
                _finding(saved, f"$.accepted[{number}].location", file),
                accepted=Acceptance(kind=saved.acceptance.kind, reason=saved.acceptance.reason),
            )
            for number, saved in enumerate(document.accepted)
        ),
        waivers=tuple(
            (Waiver(rule=one.rule, scope=one.scope, reason=one.reason, expires=one.expires), one.state)
            for one in document.waivers
        ),
        unjudged={item.what: item.reason for item in document.unjudged},
        profile=document.profile,
        comparison=document.comparison,
        diagnosis=document.diagnosis,
        failure=document.error,
        version=document.tool.version,
        words=words,
    )


def _finding(saved: _Place, root: str, file: str) -> Finding:
    try:
        place = msgspec.convert(saved.location, Location)
        folded = msgspec.convert(saved.location, _Also)
    except msgspec.ValidationError as error:
        raise _malformed(file, root, error) from None
    return Finding(
        rule=saved.rule,
        name=saved.name,
        severity=saved.severity,
        confidence=saved.confidence,
        role=saved.role,
        location=place,
        message=saved.message,
        measured=saved.measured,
        bound=saved.bound,
        fix=None if saved.fix is None else Fix(id=saved.fix.id, safe=saved.fix.safe),
        places=_places(place, folded),
        saved_fingerprint=saved.fingerprint,
    )


def _places(place: Location, folded: _Also) -> tuple[Location, ...]:
    """The example, the places that are named, and as many unnamed ones as were counted."""
    if folded.count is None:
        return ()
    named = tuple(Location(tensor=name) for name in folded.also)
    return (place, *named, *(Location(),) * (folded.count - 1 - len(named)))


def _cause(saved: _Cause, findings: dict[str, Finding], file: str) -> Cause:
    for name in (saved.finding, *saved.symptoms):
        if name not in findings:
            raise MalformedFile(file, "$.causes", "ids of findings in this report", name)
    return Cause(finding=findings[saved.finding], symptoms=tuple(findings[name] for name in saved.symptoms))
