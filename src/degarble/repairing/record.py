"""`degarble-fix.json`: what was repaired, by which version, and how to take it back or do it again.

    steps      each repair with its finding and edits: `--replay` makes the same repairs on another copy
    files      sha256 of every changed file, before and after
    undo       original file -> [file of this folder, start, length] …: `--undo` puts the original together again
    refused    what could not be repaired, why, and what to fetch

The last three are empty in a plan that was only shown. It holds no path and no time, so that the same repair of two
copies gives the same bytes. Everything in it may come from a stranger: it is read into these types, and every name and
range is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import parse_json
from degarble.checkpoint.rope import RopeSource
from degarble.errors import TargetError, UsageError
from degarble.finding import Finding, Fix, Location, Measure, Severity
from degarble.fixes.interface import Edit
from degarble.fixes.reference import sha256_of
from degarble.repairing.plan import Plan
from degarble.repairing.step import Refused, Step
from degarble.repairing.undo import Inverse, Piece
from degarble.version import __version__

SCHEMA_VERSION = 1
MAX_RECORD_BYTES = 256 << 20


class FindingRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a repair needs of a finding to be made again."""

    rule: str
    name: str = ""
    severity: str | None = None
    message: str = ""
    fix: str | None = None
    fix_safe: bool = False
    fold: str | None = None
    places: list[dict[str, str | int | float | bool]]
    measured: dict[str, Any] = {}
    bound: dict[str, Any] = {}


class EditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change."""

    file: str
    key: str | None = None
    tensor: str | None = None
    what: str
    before: Any = None
    after: Any = None


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One repair."""

    repair: str
    safe: bool
    judgement: str | None = None
    finding: FindingRecord
    edits: list[EditRecord]


class RefusedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding that stayed."""

    finding: FindingRecord
    reason: str
    fetch: list[str] = []


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """sha256 of a changed file; None where it was not, or is no more, there."""

    before: str | None
    after: str | None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document."""

    schema_version: int
    tool: dict[str, str]
    steps: list[StepRecord]
    refused: list[RefusedRecord] = []
    causes_before: list[str] = []
    causes_after: list[str] = []
    """Rules of the causes that a check found, before and after."""
    files: dict[str, FileRecord] = {}
    added: list[str] = []
    undo: dict[str, list[tuple[str, int, int]]] = {}


def step_record(step: Step) -> StepRecord:
    """A step as plain values."""
    return StepRecord(
        repair=step.repair,
        safe=step.is_safe,
        judgement=step.judgement,
        finding=finding_record(step.finding),
        edits=[_edit_record(edit) for edit in step.edits],
    )


def refused_record(refused: Refused) -> RefusedRecord:
    """A refusal as plain values."""
    return RefusedRecord(finding=finding_record(refused.finding), reason=refused.reason, fetch=list(refused.fetch))


def finding_record(finding: Finding) -> FindingRecord:
    """What has to be known to make the repair again."""
    return FindingRecord(
        rule=finding.rule,
        name=finding.name,
        severity=finding.severity.value if finding.severity else None,
        message=finding.message,
        fix=finding.fix.id if finding.fix else None,
        fix_safe=finding.fix is not None and finding.fix.safe,
        fold=finding.fold,
        places=[dict(place.as_dict()) for place in finding.all_places],  # type: ignore[arg-type]  # none is None
        measured=dict(finding.measured),
        bound=dict(finding.bound),
    )


def finding_of(record: FindingRecord) -> Finding:
    """The finding again. Raises UsageError for places that no finding has."""
    try:
        places = tuple(Location(**place) for place in record.places)  # type: ignore[arg-type]
        severity = Severity(record.severity) if record.severity else None
    except (TypeError, ValueError) as error:
        raise UsageError(f"not a plan of degarble: {error}") from None
    if not places:
        raise UsageError(f"not a plan of degarble: {record.rule} names no place")
    measured: Mapping[str, Measure] = record.measured
    return Finding(
        location=places[0],
        places=places if len(places) > 1 else (),
        rule=record.rule,
        name=record.name,
        severity=severity,
        message=record.message,
        fix=Fix(id=record.fix, safe=record.fix_safe) if record.fix else None,
        fold=record.fold,
        measured=measured,
        bound=record.bound,
    )


def _edit_record(edit: Edit) -> EditRecord:
    return EditRecord(
        file=edit.file,
        key=edit.key,
        tensor=edit.tensor,
        what=edit.what,
        before=plain(edit.before),
        after=plain(edit.after),
    )


def plain(value: Any) -> Any:
    """Numpy values of GGUF metadata as JSON has them."""
    return msgspec.to_builtins(value, enc_hook=lambda item: item.tolist())


def full_record(plan: Plan, repaired: RopeSource, inverse: Inverse, written: Source) -> Record:
    """The record of what was written; digests are taken from the bytes on disk."""
    changed = dict.fromkeys((*inverse.files, *inverse.added))
    return Record(
        schema_version=SCHEMA_VERSION,
        tool={"name": "degarble", "version": __version__},
        steps=[step_record(step) for step in plan.steps],
        refused=[refused_record(one) for one in plan.refused],
        causes_before=[cause.finding.rule for cause in plan.before.causes],
        causes_after=[cause.finding.rule for cause in plan.after.causes],
        files={name: FileRecord(before=_digest(repaired.base, name), after=_digest(written, name)) for name in changed},
        added=list(inverse.added),
        undo={name: [(p.file, p.start, p.length) for p in pieces] for name, pieces in inverse.files.items()},
    )


def _digest(source: Source, name: str) -> str | None:
    return sha256_of(source, name) if name in source.files() else None


def encode(record: msgspec.Struct) -> bytes:
    """Indented JSON with a final newline; lone surrogates in names are escaped."""
    values = printable(msgspec.to_builtins(record))
    return msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n"


def printable(value: Any) -> Any:
    """Text that UTF-8 can carry and numbers that JSON knows."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def decode(raw: bytes, name: str) -> Record:
    """Read a record. Raises UsageError if it is none, or of another schema."""
    try:
        record = msgspec.convert(parse_json(raw, name), Record)
    except (msgspec.ValidationError, TargetError, ValueError) as error:
        raise UsageError(f"{name}: not a record of degarble fix: {error}") from None
    if record.schema_version != SCHEMA_VERSION:
        raise UsageError(f"{name}: schema version {record.schema_version} is not {SCHEMA_VERSION}")
    return record


def pieces_of(record: Record) -> dict[str, tuple[Piece, ...]]:
    """The inverse, as it was recorded. Raises UsageError for ranges below zero."""
    found = {name: tuple(Piece(*piece) for piece in pieces) for name, pieces in record.undo.items()}
    if any(piece.start < 0 or piece.length < 0 for pieces in found.values() for piece in pieces):
        raise UsageError("a record with a range below zero")
    return found
