"""Counters, gauges and histograms in Prometheus's text format, version 0.0.4.

Written by hand because the format is two pages, and because the usual client library renames `vllm:` to `vllm_` for
scrapers that ask for OpenMetrics, so that boards and alerts on the colon's name see nothing. Not safe for threads:
one asyncio loop counts and shows.

    # TYPE name histogram
    name_bucket{labels,le="0.1"} 3      cumulative, up to le="+Inf"
    name_sum{labels} 1.5
    name_count{labels} 7
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


class Metric(ABC):
    """One family."""

    kind = ""

    def __init__(self, name: str, help_text: str) -> None:
        self.name, self.help_text = name, help_text

    def show(self, fixed: Mapping[str, str]) -> Iterator[str]:
        """Lines of the family; `fixed` labels stand on each."""
        escaped = self.help_text.replace("\\", "\\\\").replace("\n", "\\n")
        yield f"# HELP {self.name} {escaped}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, labels, value in self.samples():
            yield f"{self.name}{suffix}{_shown({**fixed, **dict(labels)})} {_number(value)}"

    @abstractmethod
    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Suffix of the name, labels, value."""


class Counter(Metric):
    """Only grows."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, label: str | None = None, values: Sequence[str] = ()) -> None:
        """`values` of the label are shown from the start, with 0."""
        super().__init__(name, help_text)
        self._label = label
        self._counts: dict[str, float] = dict.fromkeys(values if label else ("",), 0.0)

    def add(self, amount: float = 1, value: str = "") -> None:
        """Count, under a value of the label where there is one."""
        self._counts[value] = self._counts.get(value, 0.0) + amount

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """One line for each value of the label."""
        for value, count in self._counts.items():
            yield "", ((self._label, value),) if self._label else (), count


class Read(Metric):
    """A gauge, or a counter that somebody else keeps, read when it is asked for."""

    def __init__(self, name: str, help_text: str, read: Callable[[], float], kind: str = "gauge") -> None:
        super().__init__(name, help_text)
        self.kind, self._read = kind, read

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """One line."""
        yield "", (), self._read()


class ReadEach(Metric):
    """Counters or gauges of a label that somebody else keeps."""

    def __init__(
        self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, float]], kind: str = "counter"
    ) -> None:
        super().__init__(name, help_text)
        self.kind, self._label, self._read = kind, label, read

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """One line for each value of the label."""
        for value, count in self._read().items():
            yield "", ((self._label, value),), count


class Histogram(Metric):
    """Counts by upper bound."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        super().__init__(name, help_text)
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self) -> Iterator[tuple[str, Labels, float]]:
        """Cumulative buckets, sum and count."""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield "_bucket", (("le", _number(bound)),), total
        yield "_sum", (), self._sum
        yield "_count", (), total


def _shown(labels: Mapping[str, str]) -> str:
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}" if labels else ""


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
