"""The library's `fix`, `replay` and `undo`: a plan on a view, written to a new folder, checked again there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from degarble.checkpoint.folder import LocalFile, LocalFolder, read_range
from degarble.checkpoint.interface import Source
from degarble.checkpoint.rope import Segment
from degarble.checkpoint.spill import SpillFile
from degarble.checkpoint.workspace import Workspace
from degarble.errors import TargetError, UsageError
from degarble.evidence import Settings
from degarble.fixes.interface import CannotRepair
from degarble.fixes.reference import sha256_of
from degarble.policy.policy import NO_POLICY, Policy
from degarble.registry import rules_on
from degarble.repairing.plan import Plan, Planner
from degarble.repairing.record import (
    MAX_RECORD_BYTES,
    Record,
    decode,
    encode,
    finding_of,
    full_record,
    pieces_of,
    step_record,
)
from degarble.repairing.undo import RECORD_FILE, UNDO_FILE, Piece, invert
from degarble.repairing.verdict import new_findings
from degarble.report.interface import Report
from degarble.runner import select
from degarble.target import open_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What `fix` did."""

    plan: Plan
    out: str | None
    """The folder that was written; None if nothing was."""
    changed: tuple[str, ...] = ()
    """Files that differ from the target's, the record aside."""

    def exit_code(self, fail_on: str) -> int:
        """0 nothing at or above `fail_on` is left, 1 something is, 2 nothing could be done or written."""
        left = self.plan.after.exit_code(fail_on)
        return 2 if left and not self.plan.steps else left


def fix(
    target: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    reference: str | os.PathLike[str] | None = None,
    unsafe: bool = False,
    replay: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    select_rules: Sequence[str] = (),
    ignore_rules: Sequence[str] = (),
    policy: Policy = NO_POLICY,
    fail_on: str = "error",
) -> Outcome:
    """Repair a copy of a checkpoint: plan, write to the new folder `out`, check the result. The target never changes.

    Without `out` the plan is made and nothing is written. `reference` is a healthy copy that exact copies are taken
    from. `unsafe` allows judgements. `replay` is the record (or plan) of another copy: its steps are made again, and
    must find and leave the same bytes. Nothing is written if findings at or above `fail_on` are left and no step was
    possible. Raises UsageError, or TargetError if the target or the reference cannot be opened.
    """
    source = open_target(target)
    if out is not None:
        _require_new(Path(out), source)
    spill = SpillFile(Path(out).absolute().parent if out is not None and Path(out).absolute().parent.is_dir() else None)
    planner = Planner(
        source,
        settings or Settings(),
        reference=open_target(reference) if reference is not None else None,
        chosen=[rule.id for rule in select(select_rules, ignore_rules, rules_on())],
        policy=policy,
        unsafe=unsafe,
        spill=spill,
    )
    plan = planner.plan() if replay is None else _replayed(planner, _read(Path(replay)))
    if plan.before.failure is not None:
        raise TargetError(plan.before.failure)
    repaired = plan.workspace.source()
    inverse = invert(repaired)
    outcome = Outcome(plan=plan, out=None, changed=(*inverse.files, *inverse.added))
    if out is None or outcome.exit_code(fail_on) == 2:
        return outcome
    write(plan, out, planner.recheck)
    return replace(outcome, out=os.fspath(out))


def write(plan: Plan, out: str | os.PathLike[str], recheck: Callable[[Source], Report]) -> None:
    """Write the repaired copy with its record. It appears complete and checked, or not at all."""
    workspace = plan.workspace
    if not plan.steps:
        workspace.save(out)
        return
    if RECORD_FILE in workspace.files():
        workspace.delete(RECORD_FILE)  # kept in the undo file, so that several repairs can be taken back in turn
    repaired = workspace.source()
    inverse = invert(repaired)
    if inverse.undo:
        workspace.write_segments(UNDO_FILE, inverse.undo)

    def finish(folder: Path) -> None:
        written = _reopened(workspace.base, folder)
        record = full_record(plan, repaired, inverse, written)
        (folder / RECORD_FILE).write_bytes(encode(record))
        report = recheck(written)
        appeared = new_findings(plan.after, report)
        if report.failure is not None or appeared:
            why = report.failure or f"{appeared[0].rule}: {appeared[0].message}"
            raise TargetError(f"the written copy is not what was planned, and was removed: {why}")

    workspace.save(out, finish)


def _reopened(source: Source, folder: Path) -> Source:
    """The written copy as the target was given: a file, or a folder."""
    return open_target(folder / os.path.basename(source.path) if isinstance(source, LocalFile) else folder)


def _require_new(out: Path, source: Source) -> None:
    """Never in place, never into the target."""
    if os.path.lexists(out):
        raise UsageError(f"{out}: already exists; give a new folder")
    root = getattr(source, "root", None)
    if root is not None and out.absolute().resolve().is_relative_to(root):
        raise UsageError(f"{out} is inside the target, which is never changed")


def _read(path: Path) -> Record:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"--replay {path}: {error.strerror}") from None
    if size > MAX_RECORD_BYTES:
        raise UsageError(f"{path}: {size} bytes are too many for a record")
    return decode(read_range(path, 0, None), path.name)


def _replayed(planner: Planner, record: Record) -> Plan:
    """The steps of a record, made again; each must find and leave what it did there."""
    if not planner.unsafe and not all(step.safe for step in record.steps):
        raise UsageError("the plan holds judgements: replay it with --unsafe")
    try:
        plan = planner.replay([(step.repair, finding_of(step.finding)) for step in record.steps])
    except CannotRepair as reason:
        raise UsageError(f"the plan does not fit this copy: {reason.reason}") from None
    for number, (step, wanted) in enumerate(zip(plan.steps, record.steps, strict=True), start=1):
        if [encode(edit) for edit in step_record(step).edits] != [encode(edit) for edit in wanted.edits]:
            raise UsageError(
                f"the plan does not fit this copy: step {number} ({step.repair}) finds or leaves other bytes"
            )
    return plan


def undo(repaired: str | os.PathLike[str], out: str | os.PathLike[str]) -> tuple[str, ...]:
    """Put the original together again in the new folder `out`; returns the files that changed.

    Raises UsageError if the folder holds no record, TargetError if it was changed since.
    """
    folder = LocalFolder(repaired)
    _require_new(Path(out), folder)
    if RECORD_FILE not in folder.files() or folder.files()[RECORD_FILE] > MAX_RECORD_BYTES:
        raise UsageError(f"{repaired}: holds no readable {RECORD_FILE}: nothing to undo")
    record = decode(folder.read(RECORD_FILE), RECORD_FILE)
    workspace = Workspace(folder)
    pieces = pieces_of(record)
    _require_inside(pieces, folder)
    for name in {*record.added, RECORD_FILE, UNDO_FILE} & set(folder.files()):
        workspace.delete(name)
    for name, ranges in pieces.items():
        workspace.write_segments(name, [Segment(piece.length, None, piece.file, piece.start) for piece in ranges])

    def verify(partial: Path) -> None:
        original = LocalFolder(partial)
        for name, digests in record.files.items():
            if (sha256_of(original, name) if name in original.files() else None) != digests.before:
                raise TargetError(f"{name}: cannot be put together again: {repaired} was changed since it was repaired")

    workspace.save(out, verify)
    return tuple(record.files)


def _require_inside(pieces: Mapping[str, Sequence[Piece]], folder: LocalFolder) -> None:
    """Every range lies in a file that is there, and no byte is promised many times over."""
    sizes = folder.files()
    every = [piece for ranges in pieces.values() for piece in ranges]
    if any(piece.file not in sizes or piece.start + piece.length > sizes[piece.file] for piece in every):
        raise UsageError(f"{RECORD_FILE} names bytes that are not there")
    if sum(piece.length for piece in every) > sum(sizes.values()):
        raise UsageError(f"{RECORD_FILE} makes more bytes than there are")
