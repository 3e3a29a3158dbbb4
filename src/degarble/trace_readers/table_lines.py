"""Rows of a CSV file that a profiler printed among other lines: the header is searched, then each line is a row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator

from degarble.trace_readers.lines import TooLong, read_lines

MAX_FIELDS = 4096
Row = tuple[int, list[str] | None]
"""Line, and its fields; None where the line is none of the table."""


def fields_of(line: bytes | TooLong) -> list[str] | None:
    """The fields of a line, or None if it has none. Kernel names hold commas in quotes, never line ends."""
    if isinstance(line, TooLong):
        return None
    try:
        (row,) = csv.reader([line.decode("utf-8", "replace").replace("\0", "")], strict=True)
    except (csv.Error, ValueError):
        return None
    return row if 1 < len(row) <= MAX_FIELDS else None


def is_header_in(head: bytes, is_header: Callable[[list[str]], bool]) -> bool:
    """Whether one of the first lines is the header."""
    if b"\0" in head:
        return False
    found = (fields_of(line.rstrip(b"\r")) for line in head.split(b"\n")[:2000])
    return any(row is not None and is_header(row) for row in found)


def read_rows(path: str, is_header: Callable[[list[str]], bool]) -> Iterator[tuple[int, dict[str, str] | None]]:
    """Every line after the first header by the header's names; a further header starts anew. Empty lines are left out."""
    names: list[str] | None = None
    for number, line in read_lines(path):
        row = fields_of(line)
        if row is not None and is_header(row):
            names = [name.strip() for name in row]
        elif names is not None and (isinstance(line, TooLong) or line.strip()):
            is_row = row is not None and len(row) == len(names)
            yield number, dict(zip(names, row, strict=True)) if is_row and row is not None else None
