"""Endpoints that are broken or hostile: bounded, a clear reason, never an exception, and no secret in the report."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from degarble.endpoint import probe
from degarble.endpoint_faults.fake_endpoint import FakeEndpoint, sent
from degarble.errors import UsageError
from degarble.probe.connection import Connection, Limits
from degarble.report.json import render
from tests.probe.endpoints import LIMITS, URL, report_on

KEY = "sk-very-secret-0123456789"
SMALL = Limits(interval_seconds=0.0, budget_seconds=600.0, answer_bytes=50_000, answer_seconds=0.2)


class Endless(httpx.SyncByteStream):
    """A body without end."""

    def __iter__(self) -> Iterator[bytes]:
        return itertools.repeat(b'data: {"choices": []}\n\n')


def bare(status: int, header: str, value: str) -> httpx.Response:
    """A response of one header and hardly a body."""
    return httpx.Response(status, headers={header: value}, stream=httpx.ByteStream(b"x"))


def asked(answer: Callable[[httpx.Request], httpx.Response], limits: Limits = SMALL) -> str:
    report = probe(URL, api_key=KEY, limits=limits, transport=httpx.MockTransport(answer))
    text = render(report)
    assert KEY not in text
    assert json.loads(text)["status"] == "error" and report.exit_code() == 2
    return report.failure or ""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda request: httpx.Response(200, stream=Endless()), "more than 50000 bytes"),
        (lambda request: sent(b"\xff\xfe not JSON"), "expected a list of models"),
        (lambda request: sent(b"[" * 40_000), "expected a list of models"),
        (lambda request: sent(b'{"data": [{"id": 5}]}'), "neither chat nor completions"),
        (lambda request: sent({"error": f"bad key {KEY}"}, status=401), "wants a key"),
        (lambda request: sent({"error": f"bad key {KEY}"}, status=500), "status 500"),
        (lambda request: bare(307, "location", "https://elsewhere.invalid/v1"), "a redirect to https://elsewhere.invalid"),
        (lambda request: bare(200, "content-encoding", "gzip"), "which was not asked for"),
    ],
    ids=["endless", "no-text", "nested", "no-answers", "refused", "echo", "redirect", "compressed"],
)  # fmt: skip
def test_nothing_to_judge(answer: Callable[[httpx.Request], httpx.Response], reason: str) -> None:
    assert reason in asked(answer)


def test_nobody_there() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    assert "connection refused" in asked(refuse)


def test_a_redirect_does_not_get_the_key() -> None:
    hosts: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return bare(302, "location", "https://thief.invalid/")

    asked(answer)
    assert set(hosts) == {"stand-in.invalid"}


def test_an_endless_stream_is_trouble_and_the_rest_is_judged() -> None:
    endpoint = FakeEndpoint()
    inner = endpoint.handle
    endpoint.handle = lambda request: (  # type: ignore[method-assign]
        httpx.Response(200, stream=Endless()) if b'"stream"' in request.content else inner(request)
    )
    report = probe(URL, limits=SMALL, transport=endpoint.transport())
    assert report.status == "partial" and "probe streams" in report.unjudged
    assert {result.rule: result.outcome for result in report.results}["RUN810"] == "skipped"


@pytest.mark.parametrize(
    "shape", [b"null", b"[]", b'{"choices": {}}', b'{"choices": [3]}', b'{"choices": [{"message": []}]}']
)
def test_answers_of_another_shape(shape: bytes) -> None:
    endpoint = FakeEndpoint()
    inner = endpoint.handle
    endpoint.handle = lambda request: (  # type: ignore[method-assign]
        sent(shape)
        if request.url.path.startswith("/v1/c") and b'max_tokens":2,' not in request.content
        else inner(request)
    )
    report = probe(URL, limits=LIMITS, transport=endpoint.transport())
    assert report.failure is None or "expected" in report.failure
    assert report.summary["crashed"] == 0


def test_a_budget_that_is_spent() -> None:
    report = probe(
        URL,
        limits=Limits(interval_seconds=0.01, budget_seconds=0.25, answer_seconds=1),
        transport=FakeEndpoint().transport(),
    )
    assert report.failure is not None or report.status == "partial"
    said = [report.failure or "", *report.unjudged.values()]
    assert any("budget" in reason for reason in said)


def test_what_was_answered_is_left_out_on_request() -> None:
    endpoint = FakeEndpoint()
    secret = "patient 4711"
    from degarble.endpoint_faults.fake_endpoint import token_of

    endpoint.tokens.append(lambda question, tokens: [*tokens[:1], token_of(f"{secret} Ã© Ã¼"), *tokens[1:]])
    assert secret not in render(report_on(endpoint, redact=True))


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "localhost:8000", "http://host:99999", "http://h\n.x"])
def test_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        Connection(url)


def test_a_password_in_the_address_is_not_shown() -> None:
    connection = Connection("https://user:hunter2@host.invalid/proxy/v1/")
    assert connection.address == "https://host.invalid/proxy"


def test_a_key_that_no_header_can_carry() -> None:
    with pytest.raises(UsageError) as error:
        Connection("http://host", key="a\nb")
    assert "a\nb" not in str(error.value)
