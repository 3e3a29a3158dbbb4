"""Drawings of a comparison as inline SVG: a map of layers and modules, and the growth of the error with depth.

Colour never speaks alone: modules that a cause names carry a mark, lines differ in their dashes and have their names at
their ends, every drawing says in words what it shows, and the numbers follow as a table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence, Set

from degarble.report.comparison_data import Cell
from degarble.report.html_text import esc
from degarble.report.visible import visible
from degarble.report.words import number

NAMES, CELL, TOP, FOOT = 150, 14, 8, 22
"""Width of the names, side of a square, margins; in units of the drawing."""
MAX_COLUMNS = 96
"""Of deeper models neighbouring layers share a square, which shows the worst."""
WIDTH, HEIGHT, LEFT, RIGHT = 720, 240, 62, 110
LIGHTEST, SPAN = 0.08, 0.92
Line = tuple[str, str, Sequence[tuple[int, float]]]
"""(name, class, points)."""


def heat_map(cells: Sequence[Cell], guilty: Set[str], title: str, name: str) -> str:
    """One square a module and layer, darker for larger, on a logarithmic scale; a diamond where a cause points."""
    positive = [cell.value for cell in cells if cell.value > 0]
    if len(cells) < 2 or not positive:
        return ""
    kinds = list(dict.fromkeys(cell.kind for cell in cells))
    first, last = min(cell.layer for cell in cells), max(cell.layer for cell in cells)
    share = -(-(last - first + 1) // MAX_COLUMNS)
    columns = (last - first) // share + 1
    low, high = math.log10(min(positive)), math.log10(max(positive))
    drawn = [_name(kind, row) for row, kind in enumerate(kinds)]
    marks = []
    for (row, column), cell in _worst(cells, kinds, first, share).items():
        depth = 0.0 if cell.value <= 0 else 1.0 if high - low < 1e-9 else (math.log10(cell.value) - low) / (high - low)
        drawn.append(_square(column, row, LIGHTEST + SPAN * depth))
        if cell.module in guilty:
            marks.append(_diamond(column, row))
    width, height = NAMES + columns * CELL + 4, TOP + len(kinds) * CELL + FOOT
    drawn += [*marks, _label(NAMES, height - 7, f"layer {first}", "start"),
              _label(NAMES + columns * CELL, height - 7, f"{last}", "end")]  # fmt: skip
    words = _told(cells, kinds, positive, len(marks), share)
    return _figure(name, title, words, "".join(drawn), (max(width, NAMES + 12 * CELL), height))


def growth(lines: Sequence[Line], name: str) -> str:
    """Errors behind every layer on a logarithmic axis."""
    there = [line for line in lines if len(line[2]) > 1]
    if not there:
        return ""
    values = [value for _, _, points in there for _, value in points]
    layers = [layer for _, _, points in there for layer, _ in points]
    low, high = math.log10(min(values)), math.log10(max(values))
    if high - low < 0.01:
        low, high = low - 0.005, high + 0.005
    first, last = min(layers), max(max(layers), min(layers) + 1)

    def place(point: tuple[int, float]) -> tuple[float, float]:
        x = LEFT + 4 + (point[0] - first) / (last - first) * (WIDTH - LEFT - RIGHT - 8)
        return x, TOP + (high - math.log10(point[1])) / (high - low) * (HEIGHT - TOP - FOOT)

    drawn = [_axes(number(10**high), number(10**low), f"layer {first}", f"{last}")]
    ends: list[float] = []
    for label, kind, points in there:
        placed = [place(point) for point in points]
        drawn.append(f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in placed)}"/>')
        at = _apart(placed[-1][1], ends)
        ends.append(at)
        drawn.append(_label(placed[-1][0] + 6, at + 4, label, "start"))
    words = "; ".join(
        f"{label} {number(points[0][1])} behind layer {points[0][0]}, {number(points[-1][1])} behind layer {points[-1][0]}"
        for label, _, points in there
    )
    return _figure(name, "Growth of the error", words, "".join(drawn), (WIDTH, HEIGHT))


def _worst(cells: Sequence[Cell], kinds: list[str], first: int, share: int) -> dict[tuple[int, int], Cell]:
    found: dict[tuple[int, int], Cell] = {}
    for cell in cells:
        at = kinds.index(cell.kind), (cell.layer - first) // share
        if at not in found or cell.value > found[at].value:
            found[at] = cell
    return found


def _told(cells: Sequence[Cell], kinds: list[str], positive: list[float], marked: int, share: int) -> str:
    worst = max(cells, key=lambda cell: cell.value)
    words = (
        f"{len({cell.layer for cell in cells})} layers, {len(kinds)} kinds of modules; from {number(min(positive))} "
        f"(lightest) to {number(worst.value)} (darkest, {visible(worst.module)}), median {number(statistics.median(positive))}"
    )
    if marked:
        words += f"; {marked} marked, where a cause points"
    return words + (f"; {share} layers share a square, which shows the worst" if share > 1 else "")


def _apart(at: float, taken: list[float]) -> float:
    """A place for a label that is on no other."""
    while any(abs(at - other) < 13 for other in taken):
        at += 13
    return at


def _name(kind: str, row: int) -> str:
    return _label(NAMES - 6, TOP + row * CELL + 11, visible(kind)[-24:], "end")


def _square(column: int, row: int, opacity: float) -> str:
    return (
        f'<rect class="heat" x="{NAMES + column * CELL}" y="{TOP + row * CELL}" width="{CELL - 1}" height="{CELL - 1}" '
        f'fill-opacity="{opacity:.2f}"/>'
    )


def _diamond(column: int, row: int) -> str:
    x, y = NAMES + column * CELL + (CELL - 1) / 2, TOP + row * CELL
    return f'<path class="guilty" d="M{x} {y}l6.5 6.5l-6.5 6.5l-6.5 -6.5z"/>'


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{esc(text)}</text>'


def _axes(high: str, low: str, first: str, last: str) -> str:
    bottom = HEIGHT - FOOT
    return (
        f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{bottom}"/>'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
        + _label(LEFT - 6, TOP + 8, high, "end") + _label(LEFT - 6, bottom, low, "end")
        + _label(LEFT, HEIGHT - 6, first, "start") + _label(WIDTH - RIGHT, HEIGHT - 6, last, "end")
    )  # fmt: skip


def _figure(name: str, title: str, words: str, drawn: str, size: tuple[int, int]) -> str:
    return (
        f'<figure><figcaption id="{name}-t">{esc(title)}</figcaption>'
        f'<div class="scroll" tabindex="0" role="group" aria-label="{esc(title)}">'
        f'<svg class="wide" role="img" aria-labelledby="{name}-t {name}-d" viewBox="0 0 {size[0]} {size[1]}">'
        f'<desc id="{name}-d">{esc(words)}</desc>{drawn}</svg></div><p class="words">{esc(words)}</p></figure>'
    )
