"""The timeline as one offline page: cache index beside position id, blocks by holder over time, violations marked."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator

from degarble.trace.timeline import Forward, Timeline

WIDTH = 1100
LANE = 90
"""Height of the drawing of one request."""
ROW = 6
MAX_LANES = 24
MAX_BLOCKS = 256
STYLE = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em;max-width:1200px}svg{width:100%;height:auto;background:#fafafa}"
    "text{font:11px system-ui,sans-serif}.c{stroke:#0b62a4;fill:none;stroke-width:2}.p{stroke:#d9822b;fill:none;"
    "stroke-width:2;stroke-dasharray:5 3}.v{stroke:#b00020;stroke-width:1.5}.lane{stroke:#ddd}"
)


def page(timeline: Timeline) -> str:
    """The whole document; it loads nothing and runs nothing."""
    verdict = timeline.verdict
    told = "".join(
        f"<li>event {v.line}: <b>{v.rule}</b> {html.escape(v.message)}</li>" for v in verdict.violations[:50]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>KV-cache trace</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{STYLE}</style></head><body><h1>{html.escape(timeline.path)}</h1>"
        f"<p>{verdict.num_events} events; events {timeline.first_n} to {timeline.last_n} are drawn, "
        f"blocks of {timeline.block_size} rows.</p><ul>{told or '<li>no invariant is broken</li>'}</ul>"
        "<h2>Cache index (solid) and position id (dashed) of each request</h2>"
        f"{_positions(timeline)}<h2>Who holds which block</h2>{_blocks(timeline)}</body></html>\n"
    )


def _x(timeline: Timeline, n: int) -> float:
    span = max(1, timeline.last_n - timeline.first_n + 1)
    return round(80 + (n - timeline.first_n) / span * (WIDTH - 100), 1)


def _positions(timeline: Timeline) -> str:
    lanes: dict[str, list[Forward]] = {}
    for forward in timeline.forwards:
        lanes.setdefault(forward.request, []).append(forward)
    broken = [v.request for v in timeline.verdict.violations if v.request in lanes]
    names = sorted(lanes, key=lambda name: (name not in broken, list(lanes).index(name)))[:MAX_LANES]
    parts = [part for row, name in enumerate(names) for part in _lane(timeline, name, lanes[name], row * LANE)]
    more = f"<p>{len(lanes) - len(names)} more requests are not drawn.</p>" if len(lanes) > len(names) else ""
    return _svg(parts, max(1, len(names)) * LANE, "cache index and position id") + more


def _lane(timeline: Timeline, name: str, forwards: list[Forward], top: int) -> Iterator[str]:
    values = [value for f in forwards for value in (f.low, f.high - 1, *f.rope)]
    low, high = min(values), max(values)

    def y(value: int) -> float:
        return round(top + LANE - 12 - (value - low) / max(1, high - low) * (LANE - 24), 1)

    yield f'<line class="lane" x1="0" x2="{WIDTH}" y1="{top + LANE}" y2="{top + LANE}"/>'
    yield f'<text x="4" y="{top + 14}">{html.escape(name[:12])}</text><text x="4" y="{top + 28}">{low}…{high}</text>'
    for kind, ends in (("c", [(f.low, f.high - 1) for f in forwards]), ("p", [f.rope for f in forwards])):
        points = " ".join(
            f"{_x(timeline, f.n)},{y(first)} {_x(timeline, f.n) + 1},{y(last)}"
            for f, (first, last) in zip(forwards, ends, strict=True)
        )
        yield f'<polyline class="{kind}" points="{points}"/>'
    for violation in timeline.verdict.violations:
        if violation.request == name:
            x = _x(timeline, violation.line)
            yield f'<line class="v" x1="{x}" x2="{x}" y1="{top + 2}" y2="{top + LANE - 2}"/>'
            yield f'<text x="{x + 3}" y="{top + 12}" fill="#b00020">{violation.rule}</text>'


def _blocks(timeline: Timeline) -> str:
    blocks = sorted({holding.block for holding in timeline.holdings})
    marked = {v.block for v in timeline.verdict.violations}
    shown = [block for block in blocks if block in marked] + [block for block in blocks if block not in marked]
    rows = {block: index for index, block in enumerate(sorted(shown[:MAX_BLOCKS]))}
    parts = []
    for holding in timeline.holdings:
        if holding.block not in rows:
            continue
        begin = _x(timeline, holding.begin)
        end = _x(timeline, timeline.last_n + 1 if holding.end is None else holding.end)
        top = 10 + rows[holding.block] * ROW
        title = html.escape(
            f"block {holding.block}: {holding.request}, events {holding.begin} to {holding.end or 'the end'}"
        )
        hue = zlib.crc32(holding.request.encode("utf-8", "replace")) % 360
        parts.append(
            f'<rect x="{begin}" y="{top}" width="{max(1.0, round(end - begin, 1))}" height="{ROW - 1}" '
            f'fill="hsl({hue} 60% 60%)" opacity="0.8"><title>{title}</title></rect>'
        )
    for violation in timeline.verdict.violations:
        if violation.block in rows:
            x, y = _x(timeline, violation.line), 10 + rows[violation.block] * ROW + 2
            parts.append(
                f'<circle class="v" fill="none" cx="{x}" cy="{y}" r="6"><title>{violation.rule}</title></circle>'
            )
    parts += [f'<text x="4" y="{15 + rows[block] * ROW}">{block}</text>' for block in list(rows)[::4]]
    return _svg(parts, 20 + len(rows) * ROW, "holders of blocks")


def _svg(parts: list[str], height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
