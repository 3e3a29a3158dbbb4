"""Where what a server tells goes to: standard error as text or JSON, and a collector."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from degarble.errors import MissingExtra, UsageError
from degarble_engine.telemetry.json_log import JsonFormatter, log_request, requests_log
from degarble_engine.telemetry.request_record import Sink

TEXT, JSON = "text", "json"


def set_up_log(form: str) -> list[Sink]:
    """To standard error. As JSON every request has a line. Raises UsageError for another form."""
    if form not in (TEXT, JSON):
        raise UsageError(f"--log-format {form!r}: {TEXT} or {JSON}")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="degarble: %(message)s")
    if form == TEXT:
        return []
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
    requests_log.setLevel(logging.INFO)
    return [log_request]


def open_collector(endpoint: str | None, model: str) -> tuple[list[Sink], Callable[[], None]]:
    """Sinks, and what ends them. Raises MissingExtra, and UsageError for what is no address."""
    if endpoint is None:
        return [], _nothing
    if not endpoint.startswith(("http://", "https://")):
        raise UsageError(f"--otlp-endpoint {endpoint!r}: an address such as http://127.0.0.1:4318 is needed")
    try:
        from degarble_engine.telemetry.otel import open_otlp

        sink, close = open_otlp(endpoint, model)
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    return [sink], close


def _nothing() -> None:
    pass
