"""What is told of a request when it has ended: spans, OpenTelemetry's metrics, and lines of JSON."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from degarble.errors import UsageError
from degarble_engine.server.limits import Limits
from degarble_engine.telemetry import gen_ai_names as names
from degarble_engine.telemetry.json_log import JsonFormatter, log_request, requests_log
from degarble_engine.telemetry.outlets import open_collector, set_up_log
from degarble_engine.telemetry.request_record import RequestRecord, Sink
from tests.conftest import NOT_HERE
from tests.degarble_engine.server.served import run, serving

PATH = "/v1/completions"
BODY: dict[str, Any] = {"prompt": "abc", "max_tokens": 6, "ignore_eos": True, "temperature": 0.5, "seed": 3}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def told(
    sink: Sink, *bodies: dict[str, Any], limits: Limits | None = None, headers: dict[str, str] | None = None
) -> list[int]:
    async def asked() -> list[int]:
        async with serving(sinks=[sink], limits=limits) as (client, _):
            return [(await client.post(PATH, json=body, headers=headers)).status_code for body in bodies]

    return run(asked)


def test_a_record_has_an_end_for_every_request() -> None:
    records: list[RequestRecord] = []
    statuses = told(
        records.append, BODY, {**BODY, "stream": True}, {"prompt": 3}, headers={"x-request-id": "my-1"}
    )  # fmt: skip
    assert statuses == [200, 200, 400]
    assert [(one.status, one.error_code, one.request_id) for one in records] == [
        (200, None, "my-1"), (200, None, "my-1"), (400, "invalid_type", "my-1"),
    ]  # fmt: skip
    whole, streamed, refused = (one.generation for one in records)
    assert refused is None and whole is not None and streamed is not None
    for record, generation in zip(records, (whole, streamed), strict=False):
        (choice,) = generation.choices
        assert choice.started and choice.first and choice.last
        assert record.begun <= choice.started <= choice.first <= choice.last <= record.ended
        assert (choice.num_tokens, choice.finish_reason) == (6, "length")
        assert generation.usage["completion_tokens"] == 6


def test_a_strange_id_is_replaced_and_a_failing_sink_harms_nobody() -> None:
    records: list[RequestRecord] = []

    def sink(record: RequestRecord) -> None:
        records.append(record)
        raise RuntimeError("no collector")

    assert told(sink, BODY, headers={"x-request-id": "a b\x01"}) == [200]
    assert records[0].request_id != "a b\x01" and records[0].request_id.isalnum()


def test_a_deadline_in_a_stream_is_an_error_of_its_record() -> None:
    records: list[RequestRecord] = []
    body = {**BODY, "max_tokens": 400, "stream": True}
    told(records.append, body, limits=Limits(request_seconds=0.02))
    assert [(one.status, one.error_code) for one in records] == [(200, "timeout")]
    assert records[0].generation is not None and records[0].generation.choices[0].finish_reason == "abort"


def test_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[dict[str, Any]] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter().format(record)))

    requests_log.addHandler(handler := Lines())
    requests_log.setLevel(logging.INFO)
    try:
        told(log_request, BODY, {"prompt": 'a"\n', "model": "x\ny"}, headers={"x-request-id": "my-2"})
    finally:
        requests_log.removeHandler(handler)
        requests_log.setLevel(logging.NOTSET)
    good, bad = lines
    assert (good["request_id"], good["status"], good["completion_tokens"]) == ("my-2", 200, 6)
    assert good["time"].endswith("Z") and good["level"] == "info" and 0 < good["ttft"] <= good["seconds"]
    assert (bad["status"], bad["error"], "completion_tokens" in bad) == (404, "model_not_found", False)
    assert not any("abc" in json.dumps(line) for line in lines), "no text of a client"
    with pytest.raises(UsageError, match="text or json"):
        set_up_log("xml")


def test_an_exception_is_one_line_too() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed %s", ("a\nb",), (type(error), error, None))
    text = JsonFormatter().format(record)
    assert "\n" not in text and json.loads(text)["message"] == "failed a\nb"


@contextmanager
def collector() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """What an OTLP collector is to an exporter: it takes posts."""
    posted: dict[str, list[bytes]] = {}

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.setdefault(self.path, []).append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Taker)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_collector_gets_spans_below_the_caller_s_and_metrics() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=f"{NOT_HERE}the extra otel")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with collector() as (address, posted):
        (sink,), close = open_collector(address, "tiny")
        told(sink, BODY, {"prompt": 3}, headers={"traceparent": CALLER})
        close()
    traces = ExportTraceServiceRequest.FromString(posted["/v1/traces"][0])
    spans = [span for part in traces.resource_spans for scope in part.scope_spans for span in scope.spans]
    by_name = {span.name: span for span in spans}
    root = by_name["text_completion tiny"]
    assert root.parent_span_id.hex() == CALLER.split("-")[2] and root.trace_id.hex() == CALLER.split("-")[1]
    told_of = {one.key: one.value for one in root.attributes}
    assert told_of[names.OUTPUT_TOKENS].int_value == 6 and told_of[names.REQUEST_PARAMS["seed"]].int_value == 3
    assert told_of[names.FINISH_REASONS].array_value.values[0].string_value == "length"
    ends = [root.start_time_unix_nano]
    for name in (names.SPAN_QUEUE, names.SPAN_PREFILL, names.SPAN_DECODE):
        assert by_name[name].parent_span_id == root.span_id
        assert by_name[name].start_time_unix_nano == ends[-1]
        ends.append(by_name[name].end_time_unix_nano)
    assert ends == sorted(ends) and ends[-1] <= root.end_time_unix_nano
    assert by_name[f"POST {PATH}"].status.code == 2, "an error"
    metrics = ExportMetricsServiceRequest.FromString(posted["/v1/metrics"][-1])
    found = {m.name: m for part in metrics.resource_metrics for scope in part.scope_metrics for m in scope.metrics}
    assert set(found) == {
        names.REQUEST_DURATION, names.TIME_TO_FIRST_TOKEN, names.TIME_PER_OUTPUT_TOKEN, names.TOKEN_USAGE
    }  # fmt: skip
    (point,) = found[names.TIME_TO_FIRST_TOKEN].histogram.data_points
    assert point.count == 1 and tuple(point.explicit_bounds) == names.TTFT_BUCKETS


def test_what_is_no_address_is_said() -> None:
    with pytest.raises(UsageError, match="an address such as"):
        open_collector("localhost:4318", "tiny")
    assert open_collector(None, "tiny")[0] == []
