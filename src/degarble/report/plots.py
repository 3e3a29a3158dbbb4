"""Evidence drawn as inline SVG: a strip of one number over the layers, and a histogram of codes.

No script and no picture file: the page must open offline. Each drawing says in words what it shows (`title`, `desc`), and
takes its colours from the page, so that it follows light and dark.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from degarble.report.html_text import esc, table
from degarble.report.plot_data import MEASURES, STRIPS, Group, ratio
from degarble.report.words import number

WIDTH, HEIGHT = 340, 130
LEFT, RIGHT, TOP, BOTTOM = 58, 10, 12, 24
"""Margins; the numbers of the vertical axis stand in the left one."""


def evidence(group: Group, prefix: str) -> str:
    """All drawings of a finding's module and the table of ratios; empty if there is nothing to compare with."""
    figures = [strip(group, label, f"{prefix}-{n}") for n, label in enumerate(STRIPS)]
    figures.append(histogram(group, f"{prefix}-codes"))
    drawn = "".join(figure for figure in figures if figure)
    rows = _ratios(group)
    compared = table("Beside the same module of other layers", ("measure", "here", "median there", "ratio"), rows)
    return (f'<div class="figures">{drawn}</div>' if drawn else "") + (compared if rows else "")


def strip(group: Group, label: str, name: str) -> str:
    """One dot a layer on a logarithmic axis, the layers of the finding marked. Zeros have no logarithm: counted only."""
    points = [(peer, value) for peer in group.peers if (value := MEASURES[label](peer.row)) is not None and value > 0]
    if len(points) < 2:
        return ""
    logs = [math.log10(value) for _, value in points]
    low, high = min(logs), max(logs)
    if high - low < 0.01:
        low, high = low - 0.005, high + 0.005
    first, last = points[0][0].layer, max(points[-1][0].layer, points[0][0].layer + 1)

    def x(layer: int) -> float:
        return LEFT + 8 + (layer - first) / (last - first) * (WIDTH - LEFT - RIGHT - 16)

    def y(log: float) -> float:
        return TOP + (high - log) / (high - low) * (HEIGHT - TOP - BOTTOM)

    usual = group.usual(MEASURES[label])
    parts = [_axes(number(10**high), number(10**low), f"layer {first}", f"layer {points[-1][0].layer}")]
    if usual is not None and usual > 0:
        at = min(max(y(math.log10(usual)), TOP), HEIGHT - BOTTOM)
        parts.append(f'<line class="usual" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
    for (peer, _), log in sorted(zip(points, logs, strict=True), key=lambda point: point[0][0].layer in group.marked):
        parts.append(_dot(x(peer.layer), y(log), peer.layer in group.marked))
    zeros = len(group.peers) - len(points)
    words = f"{len(group.peers)} layers; {_told(group, label)}" + (f"; {zeros} without a positive value" * bool(zeros))
    return _figure(name, f"{label[:1].upper()}{label[1:]} by layer", words, "".join(parts))


def histogram(group: Group, name: str) -> str:
    """Share of each code here as bars, and the median share in the other layers as a line."""
    shares = group.this.histogram()
    if shares is None:
        return ""
    others = [other for peer in group.others if (other := peer.histogram()) and len(other) == len(shares)]
    usual: list[float] = [statistics.median(column) for column in zip(*others, strict=True)] if others else []
    top = max(*shares, *usual)
    step = (WIDTH - LEFT - RIGHT) / len(shares)

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share / top * (HEIGHT - TOP - BOTTOM)

    bars = "".join(
        f'<rect class="bar" x="{LEFT + at * step:.1f}" y="{y(share):.1f}" width="{max(step - 1, step * 0.8):.2f}" '
        f'height="{HEIGHT - BOTTOM - y(share):.1f}"/>'
        for at, share in enumerate(shares)
        if share > 0
    )
    line = " ".join(f"{LEFT + (at + 0.5) * step:.1f},{y(share):.1f}" for at, share in enumerate(usual))
    drawn = _axes(f"{top:.1%}", "0%", "code 0", f"{len(shares) - 1}") + bars
    if line:
        drawn += f'<polyline class="usual" points="{line}"/>'
    common = max(range(len(shares)), key=shares.__getitem__)
    words = f"{len(shares)} codes; the commonest is {common} with {shares[common]:.1%}"
    if usual:
        words += f", in other layers {max(range(len(usual)), key=usual.__getitem__)} with {max(usual):.1%} (line)"
    return _figure(name, "Codes", words, drawn)


def _told(group: Group, label: str) -> str:
    read = MEASURES[label]
    value, usual = read(group.this.row), group.usual(read)
    here = f"layer {group.this.layer} has {number(value)}"
    return here if usual is None else f"{here}, the median of the others is {number(usual)}"


def _ratios(group: Group) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for label, read in MEASURES.items():
        value, usual = read(group.this.row), group.usual(read)
        if value is None or usual is None:
            continue
        times = ratio(value, usual)
        rows.append((esc(label), esc(number(value)), esc(number(usual)), "–" if times is None else esc(f"{times:.3g}")))
    return rows


def _figure(name: str, title: str, words: str, drawn: str) -> str:
    return (
        f'<figure><figcaption id="{name}-t">{esc(title)}</figcaption>'
        f'<svg role="img" aria-labelledby="{name}-t {name}-d" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<desc id="{name}-d">{esc(words)}</desc>{drawn}</svg><p class="words">{esc(words)}</p></figure>'
    )


def _axes(high: str, low: str, first: str, last: str) -> str:
    bottom = HEIGHT - BOTTOM
    return (
        f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{bottom}"/>'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
        f'<text x="{LEFT - 6}" y="{TOP + 4}" text-anchor="end">{esc(high)}</text>'
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">{esc(low)}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 7}">{esc(first)}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 7}" text-anchor="end">{esc(last)}</text>'
    )


def _dot(x: float, y: float, is_marked: bool) -> str:
    if not is_marked:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    stem = f'<line class="stem" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
    return stem + f'<path class="mark" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"/>'
