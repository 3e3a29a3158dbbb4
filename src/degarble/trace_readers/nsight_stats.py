"""Nsight Systems CSV (`nsys stats --report cuda_gpu_trace --format csv`): launches in order, with streams and grids.

Columns change with the version (GreenCtx, units in brackets), so they are found by name. Copies and memsets are rows
called `[CUDA memcpy Device-to-Host]` or `[CUDA memcpy DtoH]`, with an empty grid. Other reports in the same file are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import ClassVar

from degarble.errors import TargetError
from degarble.trace_readers.decimal_style import integer_of, is_decimal_comma
from degarble.trace_readers.profile import Launch, Profile, ProfileReader, ProfileVerdict
from degarble.trace_readers.table_lines import is_header_in, read_rows

STYLE_ROWS = 2000
FROM_DEVICE = ("[cuda memcpy device", "[cuda memcpy dto", "[cuda memcpy peer", "[cuda memcpy ptop")


class StatsReader(ProfileReader):
    """Reads a cuda_gpu_trace."""

    name: ClassVar[str] = "nsight-systems-csv"
    title: ClassVar[str] = "Launches of Nsight Systems (CSV)"

    def recognises(self, head: bytes, path: str) -> bool:
        """By the header."""
        return is_header_in(head, is_header)

    def read(self, path: str) -> ProfileVerdict:
        """Sum up every launch in order."""
        profile = Profile(PurePath(path).name)
        has_comma = is_decimal_comma(_values(path))
        rows = 0
        last = -1
        for number, row in read_rows(path, is_header):
            rows += 1
            launch = None if row is None else _launch(row, number, has_comma)
            if launch is None:
                continue
            if launch.start is not None:
                if launch.start < last:
                    message = (
                        f"{launch.name[:80]} begins at {launch.start}, before the one above it: rows are not in order"
                    )
                    profile.fail("KVC623", number, message, "order", is_info=True)
                last = launch.start
            profile.add(launch)
        if not profile.num_launches:
            raise TargetError(f"{path}: no cuda_gpu_trace: no row of its {rows} is a launch")
        return self.finished(profile, rows)


def is_header(row: list[str]) -> bool:
    """Whether these are the column names of a cuda_gpu_trace."""
    names = {name.split("(")[0].strip() for name in row}
    return {"Start", "Duration", "Name"} <= names and bool(names & {"CorrId", "Strm", "GrdX"})


def _launch(row: dict[str, str], number: int, has_comma: bool) -> Launch | None:
    """A row as a launch; None for a row that has no begin."""
    by_name = {name.split("(")[0].strip(): value for name, value in row.items()}

    def whole(name: str) -> int | None:
        return integer_of(by_name.get(name, ""), has_comma=has_comma)

    start, duration, name = whole("Start"), whole("Duration"), by_name.get("Name", "")
    if start is None or duration is None or not name:
        return None
    x, y, z = whole("GrdX"), whole("GrdY"), whole("GrdZ")
    is_kernel = x is not None and y is not None and z is not None
    return Launch(
        record=number,
        name=name,
        start=start,
        end=start + duration,
        stream=whole("Strm") or 0,
        grid=(x, y, z) if is_kernel else None,  # type: ignore[arg-type]
        is_copy=not is_kernel,
        is_from_device=name.lower().startswith(FROM_DEVICE),
    )


def _values(path: str) -> Iterator[str]:
    for _, row in islice(read_rows(path, is_header), STYLE_ROWS):
        if row is not None:
            yield from (value.strip() for name, value in row.items() if name.split("(")[0].strip() != "Name")
