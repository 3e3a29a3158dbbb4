"""What `degarble compare` measured, as a section of the page: maps, the growth of the error, and the text token by token."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from degarble.report.comparison_data import MAX_LAYERS, Token, cells, curve, finite, rows_of, tokens
from degarble.report.comparison_plots import growth, heat_map
from degarble.report.html_text import code, details, esc, table
from degarble.report.interface import Report
from degarble.report.visible import visible
from degarble.report.words import number

MAPS = (
    ("relative_l2", "Local error of every module, relative"),
    ("z", "Error over what the rounding should cost"),
    ("inherited_relative_l2", "Error in the candidate's own run, relative"),
)
LINES = (
    ("inherited", "inherited", "inherited_error"),
    ("local", "local", "local_error"),
    ("noise floor", "usual", "noise_floor"),
)
LEVELS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""KL divergence, in nats, from which a token gets the next stronger ground."""
MAX_SHOWN, MAX_TABLE, WORST = 4096, 2_000, 20
NO_TEXT, FURTHER_BYTES = "▯", "·"


def section(report: Report) -> str:
    """The whole of it; empty without a comparison."""
    return "" if report.comparison is None else "".join(_parts(report, report.comparison))


def _parts(report: Report, comparison: Mapping[str, Any]) -> Iterator[str]:
    yield f"<p>{esc(_summary(comparison))}</p>"
    guilty = {
        place.module
        for cause in report.causes
        for place in cause.finding.all_places
        if place.module is not None
    }  # fmt: skip
    modules, layers = rows_of(comparison, "modules"), rows_of(comparison, "layers")[:MAX_LAYERS]
    drawn = growth([(label, kind, curve(layers, key)) for label, kind, key in LINES], "growth")
    drawn += "".join(
        heat_map(cells(modules, measure), guilty, title, f"map-{at}") for at, (measure, title) in enumerate(MAPS)
    )
    yield drawn
    yield from _tables(modules, layers)
    yield from _text(list(tokens(comparison))[:MAX_SHOWN])


def _summary(comparison: Mapping[str, Any]) -> str:
    found = [f"Compared on {_said(comparison, 'tokens')} tokens ({_said(comparison, 'texts')}), "
             f"the candidate in {_said(comparison, 'precision')}."]  # fmt: skip
    kl, noise = finite(comparison.get("kl_divergence")), finite(comparison.get("noise_kl"))
    if kl is not None:
        noisy = "" if noise is None else f" (noise of the reference's own dtype: {number(noise)})"
        found.append(f"KL divergence {number(kl)} nats a token{noisy}.")
    agreement = finite(comparison.get("top1_agreement"))
    if agreement is not None:
        found.append(f"Same first choice at {agreement:.1%} of the positions.")
    return " ".join(found)


def _said(comparison: Mapping[str, Any], key: str) -> str:
    return visible(str(comparison.get(key, "?")), 100)


def _tables(modules: list[Mapping[str, Any]], layers: list[Mapping[str, Any]]) -> Iterator[str]:
    if layers:
        keys = ("layer", *(key for _, _, key in LINES), "residual_rms")
        rows = [[_cell(row.get(key)) for key in keys] for row in layers]
        head = ("layer", *(label for label, _, _ in LINES), "residual rms")
        yield details("Numbers of the layers", table("Error behind every layer, relative", head, rows))
    if modules:
        keys = ("module", "sqnr_db", "relative_l2", "inherited_relative_l2", "z", "row_z", "slope")
        rows = [[_cell(row.get(key)) for key in keys] for row in modules[:MAX_TABLE]]
        head = ("module", "SQNR, dB", "local", "inherited", "z", "row z", "slope")
        more = "" if len(modules) <= MAX_TABLE else f"<p>… and {len(modules) - MAX_TABLE:,} modules more</p>"
        yield details("Numbers of the modules", table("Error of every module", head, rows) + more)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return code(visible(value))
    found = finite(value)
    return "–" if found is None else esc(number(found))


def _text(found: list[Token]) -> Iterator[str]:
    if not found:
        return
    yield "<h3>Token by token</h3>"
    steps = ", ".join(f'<span class="t{at}">{limit:g}</span>' for at, limit in enumerate(LEVELS, 1))
    yield (
        f"<p>The stronger the ground, the larger the KL divergence of what is said <em>after</em> a token: from {steps} "
        "nats. Underlined: another first choice.</p>"
    )
    for sequence, members in groupby(found, key=lambda token: token.sequence):
        shown = "".join(map(_token, members))
        yield f'<div class="tokens" role="group" aria-label="Text {sequence + 1}">{shown}</div>'
    worst = sorted(found, key=lambda token: -math.inf if token.kl is None else -token.kl)[:WORST]
    rows = [
        (code(_visible_text(token)), esc(token.sequence + 1), esc(token.position),
         "not finite" if token.kl is None else esc(number(token.kl)), "same" if token.agrees else "another")
        for token in worst
    ]  # fmt: skip
    yield details("The positions farthest off", table("Largest KL divergence", WORST_COLUMNS, rows))


WORST_COLUMNS = ("token", "text", "position", "KL, nats", "first choice")


def _token(token: Token) -> str:
    level = len(LEVELS) if token.kl is None else bisect.bisect_right(LEVELS, token.kl)
    kinds = " ".join([f"t{level}"] * bool(level) + ["other"] * (not token.agrees))
    said = "not finite" if token.kl is None else number(token.kl)
    return f'<span class="{kinds}" title="KL {esc(said)}">{esc(_visible_text(token))}</span>'


def _visible_text(token: Token) -> str:
    """Line ends as a sign, so that they can have a ground; a dot for the further bytes of a character."""
    if token.text is None:
        return NO_TEXT
    return visible(token.text.replace("\n", "↵"), 60) or FURTHER_BYTES
