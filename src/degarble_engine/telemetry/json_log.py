"""Logs as one JSON object a line, and a line for each request.

{"time": "2026-11-30T21:00:00.123Z", "level": "info", "logger": "degarble.requests", "message": "request",
 "request_id": "…", "method": "POST", "path": "/v1/chat/completions", "status": 200, "seconds": 1.25, …}
"""

from __future__ import annotations

import datetime
import logging
from typing import Any

import msgspec

from degarble_engine.telemetry.request_record import RequestRecord

requests_log = logging.getLogger("degarble.requests")
FIELDS = "fields"
"""`extra={FIELDS: {...}}` of a log call: keys of the object."""


class JsonFormatter(logging.Formatter):
    """See the module."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever stands in the message."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


def log_request(record: RequestRecord) -> None:
    """A sink."""
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "seconds": round(record.ended - record.begun, 6),
    }
    if record.error_code is not None:
        fields["error"] = record.error_code
    generation = record.generation
    if generation is not None:
        firsts = [choice.first for choice in generation.choices if choice.first is not None]
        fields |= {
            "response_id": generation.response_id,
            "engine_ids": generation.engine_ids,
            "prompt_tokens": generation.usage["prompt_tokens"],
            "cached_tokens": generation.usage["prompt_tokens_details"]["cached_tokens"],
            "completion_tokens": generation.usage["completion_tokens"],
            "finish_reasons": [choice.finish_reason for choice in generation.choices],
            "ttft": round(min(firsts) - record.begun, 6) if firsts else None,
        }
    requests_log.info("request", extra={FIELDS: fields})
