"""Records to OpenTelemetry: a span of the request with its queue, prefill and decode below it, and the server's metrics.

Spans are made when a request has ended, from its times, so that nothing of the library stands in the engine's way. A
caller's `traceparent` is the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from degarble.version import __version__
from degarble_engine.telemetry import gen_ai_names as names
from degarble_engine.telemetry.request_record import ChoiceTimes, GenerationRecord, RequestRecord

SCOPE = "degarble.server"


class OtelSink:
    """One model's. Call it with a record."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, model: str) -> None:
        self._model = model
        self._tracer = tracers.get_tracer(SCOPE, __version__)
        meter = meters.get_meter(SCOPE, __version__)

        def histogram(name: str, unit: str, bounds: tuple[float, ...]) -> Any:
            return meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=bounds)

        self._duration = histogram(names.REQUEST_DURATION, "s", names.DURATION_BUCKETS)
        self._ttft = histogram(names.TIME_TO_FIRST_TOKEN, "s", names.TTFT_BUCKETS)
        self._tpot = histogram(names.TIME_PER_OUTPUT_TOKEN, "s", names.TPOT_BUCKETS)
        self._tokens = histogram(names.TOKEN_USAGE, "{token}", names.TOKEN_BUCKETS)

    def __call__(self, record: RequestRecord) -> None:
        """Only what generated, or was refused on the way to it."""
        if record.generation is not None:
            self._trace(record, record.generation)
            self._measure(record, record.generation)
        elif record.method == "POST" and record.path.startswith("/v1/"):
            self._span(record, f"{record.method} {record.path}", {}).end(record.nanoseconds(record.ended))

    def _trace(self, record: RequestRecord, generation: GenerationRecord) -> None:
        attributes = {**self._common(generation), **_told(record, generation)}
        span = self._span(record, f"{generation.operation} {self._model}", attributes)
        below = trace.set_span_in_context(span)
        for index, choice in enumerate(generation.choices):
            own = {
                names.CHOICE_INDEX: index,
                names.ENGINE_ID: generation.engine_ids[index],
                names.NUM_TOKENS: choice.num_tokens,
                names.FINISH_REASON: choice.finish_reason or "none",
            }
            for name, start, end in _phases(record.begun, choice):
                child = self._tracer.start_span(
                    name, below, attributes=own, start_time=record.nanoseconds(start)
                )  # fmt: skip
                child.end(record.nanoseconds(end))
        span.end(record.nanoseconds(record.ended))

    def _span(self, record: RequestRecord, name: str, attributes: dict[str, Any]) -> Span:
        own = {
            names.HTTP_METHOD: record.method, names.URL_PATH: record.path, names.HTTP_STATUS: record.status,
            names.REQUEST_ID: record.request_id, **attributes,
        }  # fmt: skip
        span = self._tracer.start_span(
            name, _parent(record), SpanKind.SERVER, own, start_time=record.nanoseconds(record.begun)
        )
        if record.error_code is not None:
            span.set_attribute(names.ERROR_TYPE, record.error_code)
            span.set_status(Status(StatusCode.ERROR, record.error_code))
        return span

    def _common(self, generation: GenerationRecord) -> dict[str, str]:
        return {
            names.OPERATION_NAME: generation.operation,
            names.PROVIDER_NAME: names.PROVIDER,
            names.REQUEST_MODEL: self._model,
            names.RESPONSE_MODEL: self._model,
        }

    def _measure(self, record: RequestRecord, generation: GenerationRecord) -> None:
        common = self._common(generation)
        error = {names.ERROR_TYPE: record.error_code} if record.error_code is not None else {}
        self._duration.record(record.ended - record.begun, {**common, **error})
        for choice in generation.choices:
            if choice.first is not None:
                self._ttft.record(choice.first - record.begun, common)
            if choice.tpot is not None:
                self._tpot.record(choice.tpot, common)
        self._tokens.record(generation.usage["prompt_tokens"], {**common, names.TOKEN_TYPE: "input"})
        self._tokens.record(generation.usage["completion_tokens"], {**common, names.TOKEN_TYPE: "output"})


def open_otlp(endpoint: str, model: str) -> tuple[OtelSink, Callable[[], None]]:
    """A sink that sends by OTLP over HTTP to a collector, and what sends the rest at the end.

    Headers, timeouts and the service's name come from the OTEL_ variables of the specification.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider as Meters
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as Tracers
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    base = endpoint.rstrip("/")
    resource = Resource.create({"service.name": "degarble", "service.version": __version__})
    resource = resource.merge(Resource.create())  # the environment's name wins
    tracers = Tracers(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces")))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}/v1/metrics"))
    meters = Meters([reader], resource=resource)

    def close() -> None:
        tracers.shutdown()
        meters.shutdown()

    return OtelSink(tracers, meters, model), close


def _parent(record: RequestRecord) -> Context:
    carrier = {"traceparent": record.traceparent or "", "tracestate": record.tracestate or ""}
    return TraceContextTextMapPropagator().extract(carrier)


def _told(record: RequestRecord, generation: GenerationRecord) -> dict[str, Any]:
    firsts = [choice.first for choice in generation.choices if choice.first is not None]
    found: dict[str, Any] = {
        names.RESPONSE_ID: generation.response_id,
        names.INPUT_TOKENS: generation.usage["prompt_tokens"],
        names.OUTPUT_TOKENS: generation.usage["completion_tokens"],
        names.CACHED_TOKENS: generation.usage["prompt_tokens_details"]["cached_tokens"],
        names.FINISH_REASONS: [choice.finish_reason or "none" for choice in generation.choices],
    }
    if firsts:
        found[names.TIME_TO_FIRST_CHUNK] = min(firsts) - record.begun
    given = generation.params.items()
    return found | {names.REQUEST_PARAMS[key]: value for key, value in given if value is not None}


def _phases(begun: float, choice: ChoiceTimes) -> Iterator[tuple[str, float, float]]:
    if choice.started is not None:
        yield names.SPAN_QUEUE, begun, choice.started
        if choice.first is not None:
            yield names.SPAN_PREFILL, choice.started, choice.first
    if choice.first is not None and choice.last is not None:
        yield names.SPAN_DECODE, choice.first, choice.last
