"""Two drawings as SVG files that need nothing: how latencies are distributed, and what ran when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from degarble_engine.bench.load import LoadRun
from degarble_engine.bench.summary import values_of
from degarble_engine.bench.timed_request import Timed

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 60, 20, 40, 40
DRAWN = {"ttft": "#1b6ca8", "tpot": "#b3541e", "e2e_latency": "#3f7d3a"}
MAX_POINTS = 400
MAX_ROWS = 400


def distributions(run: LoadRun) -> str:
    """Share of requests at or below a latency, on a logarithmic axis."""
    done = [one for one in run.requests if one.failure is None]
    found = {name: sorted(values_of(done, name)) for name in DRAWN}
    found = {name: values for name, values in found.items() if values and values[0] > 0}
    low = min((values[0] for values in found.values()), default=1e-3)
    high = max((values[-1] for values in found.values()), default=1.0)
    scale = _log_scale(low, max(high, low * 1.01))
    parts = [_text(LEFT, 20, f"Latencies of {len(done)} requests of {len(run.requests)}", "start")]
    for share in (0.0, 0.5, 0.9, 1.0):
        parts.append(
            _line(LEFT, _y(share), WIDTH - RIGHT, _y(share), "#ccc") + _text(LEFT - 6, _y(share) + 4, f"{share:.0%}")
        )
    for value, label in _decades(low, high):
        parts.append(_line(scale(value), TOP, scale(value), HEIGHT - BOTTOM, "#eee"))
        parts.append(_text(scale(value), HEIGHT - BOTTOM + 16, label, "middle"))
    for at, (name, values) in enumerate(found.items()):
        points = " ".join(f"{scale(value):.1f},{_y(share):.1f}" for value, share in _steps(values))
        parts.append(f'<polyline fill="none" stroke="{DRAWN[name]}" stroke-width="2" points="{points}"/>')
        parts.append(_text(WIDTH - RIGHT, TOP + 16 * (at + 1), name, "end", DRAWN[name]))
    return _svg("Distribution of latencies", parts)


def timeline(run: LoadRun) -> str:
    """A line a request from its arrival to its end: waiting at the client, to the first text, and after it."""
    shown: Sequence[Timed] = sorted(run.requests, key=lambda one: one.arrival)[:MAX_ROWS]
    end = max((one.ended for one in shown), default=1.0) or 1.0
    step = (HEIGHT - TOP - BOTTOM) / max(1, len(shown))

    def x(seconds: float) -> float:
        return LEFT + seconds / end * (WIDTH - LEFT - RIGHT)

    of_all = "" if len(shown) == len(run.requests) else f" (the first {len(shown)})"
    parts = [_text(LEFT, 20, f"{len(run.requests)} requests{of_all} over {end:.2f} s; failures red", "start")]
    for row, one in enumerate(shown):
        y = TOP + (row + 0.5) * step
        first = one.text_times[0] if one.text_times else one.ended
        pieces = [(one.arrival, one.sent, "#999"), (one.sent, first, "#1b6ca8"), (first, one.ended, "#3f7d3a")]
        for start, stop, colour in pieces:
            if stop > start:
                own = "#c0392b" if one.failure is not None else colour
                parts.append(_line(x(start), y, x(stop), y, own, min(6.0, max(0.5, step * 0.7))))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_text(x(share * end), HEIGHT - BOTTOM + 16, f"{share * end:.1f} s", "middle"))
    return _svg("What ran when", parts)


def _steps(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    stride = max(1, len(values) // MAX_POINTS)
    for at in range(0, len(values), stride):
        yield values[at], (at + 1) / len(values)
    yield values[-1], 1.0


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


class _log_scale:
    """Seconds to a place."""

    def __init__(self, low: float, high: float) -> None:
        from math import log

        self._log, self._low, self._range = log, log(low), log(high) - log(low)

    def __call__(self, value: float) -> float:
        return LEFT + (self._log(value) - self._low) / self._range * (WIDTH - LEFT - RIGHT)


def _decades(low: float, high: float) -> Iterator[tuple[float, str]]:
    for power in range(-6, 5):
        for digit in (1, 2, 5):
            value = digit * 10.0**power
            if low <= value <= high:
                yield value, f"{value:g} s" if value >= 1 else f"{1000 * value:g} ms"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:.1f}"/>'
    )


def _text(x: float, y: float, words: str, anchor: str = "end", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _svg(title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    )
    return head + "".join(parts) + "</svg>\n"
