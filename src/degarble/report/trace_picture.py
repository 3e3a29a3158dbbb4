"""A trace drawn for its page: occupancy of the pool over time with violations marked, and positions of requests beside slots.

Everything is drawn by class, so that it follows light and dark, and says in words what it shows. Sizes are bounded: events
and blocks are drawn in columns and rows, and the words say how many of each stand for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from degarble.report.html_text import bullets, details, esc, table
from degarble.report.visible import visible
from degarble.report.words import plural
from degarble.trace.occupancy import Occupancy
from degarble.trace.timeline import Forward, Timeline

LEFT, CELL, ROW, TOP = 60, 4, 4, 14
CURVE = 60
"""Height of the curve of blocks held."""
LEVELS = 4
MAX_TABLE = 24
MAX_LABELS = 12
LANE, MAX_LANES = 84, 12
STEPS = 240
"""Columns of the drawing of positions, and points of one line."""


def pictures(occupancy: Occupancy, timeline: Timeline) -> str:
    """Both drawings with their words, as the body of a section."""
    return f'<div class="wide">{_occupancy(occupancy)}</div><div class="wide">{_positions(timeline)}</div>'


def _occupancy(one: Occupancy) -> str:
    columns = one.peaks.size
    width = LEFT + columns * CELL + 10
    bottom = TOP + CURVE + 16 + len(one.grid) * ROW
    words = _words(one)
    drawn = "".join((*_curve(one), *_heat(one), *_marks(one, bottom)))
    figure = (
        '<figure><figcaption id="occupancy-t">Blocks held over the trace</figcaption>'
        f'<svg role="img" aria-labelledby="occupancy-t occupancy-d" viewBox="0 0 {width} {bottom + 24}">'
        f'<desc id="occupancy-d">{esc(words)}</desc>{drawn}</svg><p class="words">{esc(words)}</p></figure>'
    )
    return figure + details("The same as a table", _table(one))


def _words(one: Occupancy) -> str:
    peak = int(one.peaks.max())
    at = one.events_of(int(one.peaks.argmax()))
    pool = f"{one.num_blocks:,} blocks" + (
        ""
        if one.is_declared
        else " (the largest id that came, and one: no number is declared, so that cells are upper bounds)"
    )
    parts = [
        f"{one.num_events:,} events, {one.events_a_column:,} in a column; {pool}, {one.blocks_a_row:,} in a row. "
        f"The curve and the darkness of a cell are the most blocks held at one moment of it: at most {peak:,}, around events "
        f"{at[0]:,} to {at[1] - 1:,}"
    ]
    real = [mark for mark in one.marks if not mark.violation.is_info]
    parts.append(f"{plural(len(real), 'violation')} marked by triangles" if real else "no violation is marked")
    if real:
        first = real[0]
        held = int(one.peaks[first.column])
        parts.append(f"at the first, event {first.violation.line:,} ({first.violation.rule}), {held:,} blocks are held")
    if one.num_ignored:
        parts.append(f"{one.num_ignored:,} table entries name blocks outside the pool and are not drawn")
    return "; ".join(parts)


def _curve(one: Occupancy) -> Iterator[str]:
    top = max(1, int(one.peaks.max()))
    points = " ".join(
        f"{LEFT + at * CELL + CELL // 2},{TOP + CURVE - round(int(peak) / top * CURVE)}"
        for at, peak in enumerate(one.peaks)
    )
    end = LEFT + one.peaks.size * CELL
    yield f'<line class="axis" x1="{LEFT}" x2="{end}" y1="{TOP + CURVE}" y2="{TOP + CURVE}"/>'
    yield f'<text x="4" y="{TOP + 8}">{top:,}</text><text x="4" y="{TOP + CURVE}">0 held</text>'
    yield f'<polyline class="held" points="{points}"/>'


def _heat(one: Occupancy) -> Iterator[str]:
    """One path a level, made of runs of equal cells."""
    sizes = np.full(len(one.grid), one.blocks_a_row)
    sizes[-1] = max(1, one.num_blocks - (len(one.grid) - 1) * one.blocks_a_row)
    levels = np.ceil(np.minimum(one.grid / sizes[:, None], 1.0) * LEVELS).astype(int)
    top = TOP + CURVE + 16
    paths: dict[int, list[str]] = {level: [] for level in range(1, LEVELS + 1)}
    for row, cells in enumerate(levels):
        edges = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
        for begin, end in pairwise(edges):
            if level := int(cells[begin]):
                width = (end - begin) * CELL
                paths[level].append(f"M{LEFT + begin * CELL} {top + row * ROW}h{width}v{ROW - 1}h-{width}z")
    for level, parts in paths.items():
        if parts:
            yield f'<path class="held{level}" d="{"".join(parts)}"/>'
    for row in range(0, len(one.grid), max(1, len(one.grid) // 8)):
        yield f'<text x="4" y="{top + row * ROW + 8}">{row * one.blocks_a_row:,}</text>'


def _marks(one: Occupancy, bottom: int) -> Iterator[str]:
    """A triangle below the column of each violation, a ring at its block, and the rules of the first few."""
    top = TOP + CURVE + 16
    labelled: set[int] = set()
    by_column = Counter(mark.column for mark in one.marks if not mark.violation.is_info)
    for column in by_column:
        x = LEFT + column * CELL + CELL // 2
        yield f'<path class="mark" d="M{x} {bottom + 2}l4 7h-8z"/>'
    for mark in one.marks:
        if mark.violation.is_info:
            continue
        x = LEFT + mark.column * CELL + CELL // 2
        if mark.row is not None:
            yield f'<circle class="ring" cx="{x}" cy="{top + mark.row * ROW + ROW // 2}" r="5"/>'
        is_free = all(abs(mark.column - other) > 10 for other in labelled)
        if is_free and len(labelled) < MAX_LABELS:
            labelled.add(mark.column)
            yield f'<text x="{min(x, LEFT + one.peaks.size * CELL - 40)}" y="{bottom + 20}">{esc(mark.violation.rule)}</text>'


def _table(one: Occupancy) -> str:
    """The curve and the marks in at most MAX_TABLE rows."""
    step = -(-one.peaks.size // MAX_TABLE)
    rows = []
    for begin in range(0, one.peaks.size, step):
        end = min(begin + step, one.peaks.size)
        rules = [m.violation.rule for m in one.marks if begin <= m.column < end and not m.violation.is_info]
        told = ", ".join(f"{rule} × {count}" for rule, count in Counter(rules).most_common(4))
        first, last = one.events_of(begin)[0], one.events_of(end - 1)[1] - 1
        rows.append((f"{first:,} to {last:,}", f"{int(one.peaks[begin:end].max()):,}", esc(told) or "–"))
    return table("Blocks held", ("events", "most blocks held", "violations"), rows)


def _positions(timeline: Timeline) -> str:
    lanes: dict[str, list[Forward]] = {}
    for forward in timeline.forwards:
        lanes.setdefault(forward.request, []).append(forward)
    if not lanes:
        return ""
    broken = {violation.request for violation in timeline.verdict.violations}
    names = sorted(lanes, key=lambda name: name not in broken)[:MAX_LANES]
    drawn = "".join(part for row, name in enumerate(names) for part in _lane(timeline, name, lanes[name], row * LANE))
    words = (
        f"Events {timeline.first_n:,} to {timeline.last_n:,}: cache index (solid) and position id (dashed) of "
        f"{len(names)} of {len(lanes)} requests, those with violations first"
    )
    apart = [name for name in names if any(f.rope != (f.low, f.high - 1) for f in lanes[name])]
    told = [f"{visible(name, 40)}: the two lines differ" for name in apart]
    return (
        '<figure><figcaption id="positions-t">Positions of requests</figcaption>'
        f'<svg role="img" aria-labelledby="positions-t positions-d" viewBox="0 0 {LEFT + STEPS * CELL + 10} {len(names) * LANE}">'
        f'<desc id="positions-d">{esc(words)}</desc>{drawn}</svg><p class="words">{esc(words)}</p></figure>'
        + (bullets(esc(one) for one in told) if told else "")
    )


def _lane(timeline: Timeline, name: str, forwards: list[Forward], top: int) -> Iterator[str]:
    values = [value for f in forwards for value in (f.low, f.high - 1, *f.rope)]
    low, high = min(values), max(values)
    span = max(1, timeline.last_n - timeline.first_n)

    def x(n: int) -> float:
        return round(LEFT + (n - timeline.first_n) / span * STEPS * CELL, 1)

    def y(value: int) -> float:
        return round(top + LANE - 12 - (value - low) / max(1, high - low) * (LANE - 24), 1)

    yield f'<line class="axis" x1="0" x2="{LEFT + STEPS * CELL}" y1="{top + LANE}" y2="{top + LANE}"/>'
    yield f'<text x="4" y="{top + 14}">{esc(visible(name[:9]))}</text><text x="4" y="{top + 28}">{low}…{high}</text>'
    thinned = forwards[:: max(1, len(forwards) // STEPS)]
    for kind, ends in (("held", [(f.low, f.high - 1) for f in thinned]), ("usual", [f.rope for f in thinned])):
        points = " ".join(f"{x(f.n)},{y(a)} {x(f.n) + 1},{y(b)}" for f, (a, b) in zip(thinned, ends, strict=True))
        yield f'<polyline class="{kind}" points="{points}"/>'
    for violation in timeline.verdict.violations:
        if violation.request == name and timeline.first_n <= violation.line <= timeline.last_n:
            yield f'<path class="mark" d="M{x(violation.line)} {top + 4}l4 7h-8z"/>'
            yield f'<text x="{min(x(violation.line) + 6, LEFT + STEPS * CELL - 40)}" y="{top + 12}">{esc(violation.rule)}</text>'
