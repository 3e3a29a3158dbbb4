"""Nsight Compute CSV (`ncu --csv`): grids and counters of each profiled launch.

Long form: one row for each metric of each launch, `"ID", …, "Kernel Name", …, "Metric Name", "Metric Unit", "Metric Value"`.
Wide form (`--page raw`): one row a launch, metric names as columns, and a row of units after the header. Lines of the
program and `==PROF==` lines come before and between. Launches are replayed for their counters, so times are no timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import ClassVar

from degarble.errors import TargetError
from degarble.trace_readers.decimal_style import is_decimal_comma, number_of, triple_of
from degarble.trace_readers.profile import COUNTERS, Launch, Profile, ProfileReader, ProfileVerdict
from degarble.trace_readers.table_lines import is_header_in, read_rows

STYLE_ROWS = 4000
"""Rows that show how the file writes numbers."""
MAX_SILENT = 50


class ComputeReader(ProfileReader):
    """Reads what `ncu --csv` printed."""

    name: ClassVar[str] = "nsight-compute"
    title: ClassVar[str] = "Counters of Nsight Compute"

    def recognises(self, head: bytes, path: str) -> bool:
        """By the header."""
        return is_header_in(head, is_header)

    def read(self, path: str) -> ProfileVerdict:
        """Sum up every launch."""
        profile = Profile(PurePath(path).name)
        has_comma = is_decimal_comma(_values(path))
        rows = bad = 0
        last: str | None = None
        for number, row in read_rows(path, is_header):
            rows += 1
            if row is None:
                bad += 1
                continue
            launch = row.get("ID", "")
            name = row.get("Kernel Name", "")
            if not launch.strip() or not name:
                continue
            if launch != last:
                grid = triple_of(row.get("Grid Size", ""))
                profile.add(Launch(record=number, name=name, grid=grid))
                last = launch
            for metric, value in _metrics(row):
                found = number_of(value, has_comma=has_comma)
                if found is not None:
                    profile.count(name, metric, found)
        if bad > MAX_SILENT and bad > rows // 2:
            profile.notes["lines that are no rows"] = f"{bad:,} of {rows:,}"
        if not profile.num_launches:
            raise TargetError(f"{path}: no Nsight Compute CSV: no row of its {rows} names a launch")
        return self.finished(profile, rows)


def is_header(row: list[str]) -> bool:
    """Whether these are the column names of `ncu --csv`."""
    names = {name.strip() for name in row}
    return {"ID", "Kernel Name"} <= names and ("Metric Value" in names or bool(names & {"Context", "Stream"}))


def _metrics(row: dict[str, str]) -> Iterator[tuple[str, str]]:
    if "Metric Name" in row:
        yield row["Metric Name"], row.get("Metric Value", "")
        return
    for name, value in row.items():
        if name in COUNTERS:
            yield name, value


def _values(path: str) -> Iterator[str]:
    for _, row in islice(read_rows(path, is_header), STYLE_ROWS):
        if row is not None and "Metric Value" in row:
            yield row["Metric Value"].strip()
        elif row is not None:
            yield from (value.strip() for name, value in row.items() if "__" in name)
