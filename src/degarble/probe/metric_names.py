"""Names of metrics that boards and alerts are built on, by engine, from `data/engines/metric_names.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from degarble.engines.table import read_table


class MetricName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One family."""

    name: str
    was: tuple[str, ...] = ()
    """Older names of the same number."""


class _Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    source: str
    metrics: tuple[MetricName, ...]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    engines: tuple[_Engine, ...]


@cache
def metric_names() -> Mapping[str, tuple[MetricName, ...]]:
    """Engine -> names."""
    return {engine.name: engine.metrics for engine in read_table(_Table, "metric_names.toml").engines}
