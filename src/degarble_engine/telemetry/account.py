"""The account of one HTTP request, opened when it arrives and closed once."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence

from degarble_engine.telemetry.request_record import GenerationRecord, RequestRecord, Sink

log = logging.getLogger("degarble.server")
REQUEST_ID = "x-request-id"
"""Header of requests and answers."""
CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Ids of a client that are taken over; any other is replaced by our own."""
MAX_PATH = 200


class Account:
    """Told to every sink when it is closed."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], sinks: Sequence[Sink]) -> None:
        given = headers.get(REQUEST_ID, "")
        self.request_id = given if CLIENT_ID.fullmatch(given) else uuid.uuid4().hex
        self.generation: GenerationRecord | None = None
        """Set by whoever generates, before the end."""
        self._method, self._path, self._sinks = method, path[:MAX_PATH], sinks
        self._traceparent, self._tracestate = headers.get("traceparent"), headers.get("tracestate")
        self._begun_ns, self._begun = time.time_ns(), time.perf_counter()
        self._is_open = True

    def close(self, status: int, error_code: str | None = None) -> None:
        """The first end counts. A sink that fails is a bug of ours and no concern of the client."""
        if not self._is_open:
            return
        self._is_open = False
        record = RequestRecord(
            request_id=self.request_id,
            method=self._method,
            path=self._path,
            status=status,
            error_code=error_code,
            begun_ns=self._begun_ns,
            begun=self._begun,
            ended=time.perf_counter(),
            traceparent=self._traceparent,
            tracestate=self._tracestate,
            generation=self.generation,
        )
        for sink in self._sinks:
            try:
                sink(record)
            except Exception:
                log.exception("telemetry failed")
