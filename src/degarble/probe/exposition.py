"""The names in a Prometheus exposition: of samples, and of families as HELP and TYPE lines call them."""

from __future__ import annotations

import re

import msgspec

MAX_NAMES = 20_000
SUFFIXES = ("_total", "_bucket", "_count", "_sum", "_created")
_SAMPLE = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{|\s)")
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""The Accept header of Prometheus 2.x: it takes OpenMetrics and does not ask for `escaping=allow-utf-8`."""
PLAIN = "text/plain"


class Exposition(msgspec.Struct, frozen=True, kw_only=True):
    """The same page as two scrapers get it."""

    plain: frozenset[str]
    """Names of samples in the text format."""
    negotiated: frozenset[str]
    """Names of samples that a Prometheus 2.x is given."""


def sample_names(text: str) -> frozenset[str]:
    """Names of all samples, as they stand."""
    names: set[str] = set()
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found:
            names.add(found[1])
        if len(names) >= MAX_NAMES:
            break
    return frozenset(names)


def has_family(names: frozenset[str], family: str) -> bool:
    """Whether a family has samples, whichever suffix its type gives them."""
    return family in names or any(family + suffix in names for suffix in SUFFIXES)
