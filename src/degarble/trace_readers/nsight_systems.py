"""Nsight Systems SQLite (`nsys export --type sqlite`): launches, copies and NVTX ranges of a run.

Tables are made only for what was recorded and their columns change with the version, so the schema is read first and what is
missing is NULL. Kernels run after the host asked for them: the runtime call with the same correlationId says when, and
puts a kernel into the NVTX range it belongs to. The file is opened read-only, and a query that runs too long is stopped.
"""

from __future__ import annotations

import heapq
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any, ClassVar

from degarble.errors import TargetError
from degarble.trace_readers.profile import (
    MAX_SHOWN,
    ONE_BLOCK_A_TOKEN,
    Launch,
    Profile,
    ProfileReader,
    ProfileVerdict,
    StepRange,
)

MAGIC = b"SQLite format 3\0"
KERNEL, COPY, RUNTIME = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "RUNTIME"))
RANGES = (59, 60, 70, 71)
"""NVTX event types that have a begin and an end."""
FROM_DEVICE = (2, 8, 10)
"""copyKind of device to host, device to device and peer to peer."""
MAX_SECONDS = 300
OPERATIONS_A_LOOK = 100_000
LOST = ("lost", "dropped", "incomplete", "overflow", "not collected")
Schema = Mapping[str, frozenset[str]]


class SystemsReader(ProfileReader):
    """Reads an exported profile."""

    name: ClassVar[str] = "nsight-systems"
    title: ClassVar[str] = "Launches of Nsight Systems"

    def recognises(self, head: bytes, path: str) -> bool:
        """By the format; whether its tables are Nsight's is said on reading."""
        return head.startswith(MAGIC)

    def read(self, path: str) -> ProfileVerdict:
        """Sum up launches in the order of their begin, and put them into steps."""
        profile = Profile(PurePath(path).name)
        try:
            with closing(_opened(path)) as database:
                schema = _schema(database)
                if KERNEL not in schema and COPY not in schema:
                    raise TargetError(f"{path}: a SQLite file without {KERNEL} and {COPY}: no export of Nsight Systems")
                _facts(database, schema, profile)
                profile.set_steps(_ranges(database, schema))
                starts = [step.start for step in profile.steps]
                for launch in heapq.merge(
                    _kernels(database, schema, profile),
                    _copies(database, schema, profile),
                    key=lambda one: one.start or 0,
                ):
                    profile.add(launch)
                    _into_step(profile.steps, starts, launch)
        except (sqlite3.Error, OverflowError) as error:
            if not profile.num_launches:
                raise TargetError(f"{path}: no readable SQLite file: {error}") from None
            profile.fail(
                "KVC623",
                profile.num_launches,
                f"the file is damaged after {profile.num_launches} launches: {error}",
                "file",
            )
            profile.notes["the rest of the file"] = f"not read: {error}"
        return self.finished(profile, profile.num_launches)


def _opened(path: str) -> sqlite3.Connection:
    if not Path(path).is_file():
        raise TargetError(f"{path}: no file")
    database = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema = OFF")
    deadline = time.monotonic() + MAX_SECONDS
    database.set_progress_handler(lambda: time.monotonic() > deadline, OPERATIONS_A_LOOK)
    return database


def _schema(database: sqlite3.Connection) -> Schema:
    """Ordinary tables and their columns; views and virtual tables could run anything and are left out."""
    found: dict[str, frozenset[str]] = {}
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
    for (name,) in database.execute(query).fetchall():
        if isinstance(name, str) and name.isidentifier():
            found[name] = frozenset(str(row[1]) for row in database.execute(f'PRAGMA table_info("{name}")'))
    return found


def _facts(database: sqlite3.Connection, schema: Schema, profile: Profile) -> None:
    """When the capture began, and what the profiler says it lost."""
    if "utcEpochNs" in schema.get("TARGET_INFO_SESSION_START_TIME", ()):
        row = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1").fetchone()
        profile.epoch_ns = row[0] if row and isinstance(row[0], int) else None
    if "text" in schema.get("DIAGNOSTIC_EVENT", ()):
        for (text,) in database.execute("SELECT text FROM DIAGNOSTIC_EVENT LIMIT 10000"):
            if isinstance(text, str) and any(word in text.lower() for word in LOST):
                profile.notes["events that the profiler lost"] = text[:200]
                return


def _column(schema: Schema, table: str, alias: str, *names: str) -> str:
    """The first of the names that the table has, else NULL."""
    found = next((name for name in names if name in schema.get(table, ())), None)
    return "NULL" if found is None else f'{alias}."{found}"'


def _kernels(database: sqlite3.Connection, schema: Schema, profile: Profile) -> Iterator[Launch]:
    if not {"start", "end"} <= schema.get(KERNEL, frozenset()):
        return
    name = _column(schema, KERNEL, "k", "demangledName", "shortName", "mangledName", "name")
    has_strings = {"id", "value"} <= schema.get("StringIds", frozenset()) and name != "NULL"
    has_calls = {"start", "correlationId"} <= schema.get(RUNTIME, frozenset()) and "correlationId" in schema[KERNEL]
    columns = [_column(schema, KERNEL, "k", one) for one in ("deviceId", "streamId", "gridX", "gridY", "gridZ")]
    query = (
        f'SELECT k.rowid, k.start, k."end", {", ".join(columns)}, {"s.value" if has_strings else "NULL"}, {name}, '
        f"{'r.start' if has_calls else 'NULL'} FROM {KERNEL} k"
        + (f" LEFT JOIN StringIds s ON s.id = {name}" if has_strings else "")
        + (f" LEFT JOIN {RUNTIME} r ON r.correlationId = k.correlationId" if has_calls else "")
        + " ORDER BY k.start, k.rowid"
    )
    last = None
    for row, start, end, device, stream, x, y, z, text, raw, issued in database.execute(query):
        if row == last:
            continue
        last = row
        if not _is_time(start, end):
            profile.fail(
                "KVC623", _number(row), f"a kernel begins at {str(start)[:30]} and ends at {str(end)[:30]}", "times"
            )
            continue
        grid = (x, y, z)
        yield Launch(
            record=_number(row),
            name=str(text if text is not None else raw)[:400],
            start=start,
            end=end,
            device=_number(device),
            stream=_number(stream),
            grid=grid if all(isinstance(one, int) for one in grid) else None,
            issued=issued if isinstance(issued, int) else None,
        )


def _copies(database: sqlite3.Connection, schema: Schema, profile: Profile) -> Iterator[Launch]:
    if not {"start", "end"} <= schema.get(COPY, frozenset()):
        return
    columns = [_column(schema, COPY, "m", one) for one in ("deviceId", "streamId", "bytes", "copyKind")]
    query = f'SELECT m.rowid, m.start, m."end", {", ".join(columns)} FROM {COPY} m ORDER BY m.start, m.rowid'
    for row, start, end, device, stream, num_bytes, kind in database.execute(query):
        if not _is_time(start, end):
            profile.fail(
                "KVC623", _number(row), f"a copy begins at {str(start)[:30]} and ends at {str(end)[:30]}", "times"
            )
            continue
        yield Launch(
            record=_number(row),
            name=f"copy of kind {str(kind)[:20]}",
            start=start,
            end=end,
            device=_number(device),
            stream=_number(stream),
            num_bytes=num_bytes if isinstance(num_bytes, int) else None,
            is_copy=True,
            is_from_device=kind in FROM_DEVICE,
        )


def _ranges(database: sqlite3.Connection, schema: Schema) -> Iterator[tuple[str, int, int]]:
    columns = schema.get("NVTX_EVENTS", frozenset())
    if not {"start", "end"} <= columns:
        return
    has_strings = "textId" in columns and {"id", "value"} <= schema.get("StringIds", frozenset())
    own = 'n."text"' if "text" in columns else "NULL"
    text = f"COALESCE({own}, s.value)" if has_strings else own
    kind = 'n."eventType"' if "eventType" in columns else "NULL"
    query = f'SELECT {text}, n.start, n."end", {kind} FROM NVTX_EVENTS n' + (
        " LEFT JOIN StringIds s ON s.id = n.textId" if has_strings else ""
    )
    for words, start, end, event_type in database.execute(query):
        if isinstance(words, str) and _is_time(start, end) and (event_type is None or event_type in RANGES):
            yield words[:400], start, end


def _into_step(steps: list[StepRange], starts: list[int], launch: Launch) -> None:
    """Put a launch into the step whose range its runtime call, or else its own begin, lies in."""
    at = launch.issued if launch.issued is not None else launch.start
    index = -1 if at is None else bisect_right(starts, at) - 1
    if index < 0 or at is None or at > steps[index].end:
        return
    step = steps[index]
    step.num_launches += 1
    if len(step.launches) < MAX_SHOWN:
        grid = f" {list(launch.grid)}" if launch.grid else ""
        step.launches.append(f"{launch.name[:60]}{grid} on stream {launch.stream}")
    if launch.grid and ONE_BLOCK_A_TOKEN.search(launch.name) and len(step.writer_blocks) < 1024:
        step.writer_blocks.append(launch.grid[0] * launch.grid[1] * launch.grid[2])


def _is_time(start: Any, end: Any) -> bool:
    return isinstance(start, int) and isinstance(end, int)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
