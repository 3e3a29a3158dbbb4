"""A client that says exactly what went wrong: every failure has a kind, because kinds are what a benchmark counts."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from degarble.errors import DegarbleError, UsageError
from degarble_engine.endpoint.event_lines import EventLines

DONE = b"[DONE]"
KEY_VARIABLES = ("DEGARBLE_API_KEY", "OPENAI_API_KEY")
MAX_TOLD = 300
"""Characters of an endpoint's own message."""


class EndpointFailed(DegarbleError):
    """`kind`: connect, timeout, disconnected, protocol, stream_error, or http_ and the status."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class Endpoint:
    """`async with Endpoint(...).opened() as endpoint`."""

    def __init__(
        self, url: str, *, api_key: str | None = None, seconds: float = 600.0, most: int = 1000,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        """`seconds`: of silence, and until a connection; `most`: connections at a time."""
        self.base = base_of(url)
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(
            base_url=self.base,
            headers=headers,
            timeout=httpx.Timeout(seconds),
            limits=httpx.Limits(max_connections=most),
            transport=transport,
            trust_env=False,
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Endpoint]:
        """Connections are closed at the end."""
        async with self._http:
            yield self

    async def models(self) -> list[str]:
        """Names of what is served. Raises EndpointFailed."""
        with _named():
            response = await self._http.get("/models")
        _require_ok(response.status_code, response.content)
        try:
            return [str(one["id"]) for one in response.json()["data"]]
        except (ValueError, KeyError, TypeError):
            raise EndpointFailed("protocol", f"{self.base}/models is no list of models") from None

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Chunks of an answer. Raises EndpointFailed, also for a stream that ends without [DONE]."""
        lines = EventLines()
        with _named():
            async with self._http.stream("POST", path, json={**body, "stream": True}) as response:
                if response.status_code != 200:
                    _require_ok(response.status_code, await response.aread())
                async for data in response.aiter_raw():
                    for line in lines.feed(data):
                        if line == DONE:
                            return
                        yield _chunk(line)
        raise EndpointFailed("disconnected", "the stream ended without [DONE]")


def key_of_environment() -> str | None:
    """What a client calls itself by, where a variable says so; ours first."""
    return next((found for name in KEY_VARIABLES if (found := os.environ.get(name))), None)


def base_of(url: str) -> str:
    """`http://host:8000` and `http://host:8000/v1/` are the same. Raises UsageError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is no address; http://127.0.0.1:8000 would be one")
    base = url.split("?", 1)[0].rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


def _chunk(line: bytes) -> dict[str, Any]:
    try:
        chunk = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise EndpointFailed("protocol", f"an event that is no JSON object: {line[:60]!r}") from None
    if chunk.get("error") is not None:
        raise EndpointFailed("stream_error", _message(chunk))
    return chunk


def _require_ok(status: int, content: bytes) -> None:
    if status != 200:
        try:
            told = _message(msgspec.json.decode(content, type=dict[str, Any]))
        except (msgspec.DecodeError, RecursionError):
            told = content[:MAX_TOLD].decode("utf-8", "replace")
        raise EndpointFailed(f"http_{status}", told)


def _message(body: Mapping[str, Any]) -> str:
    error = body.get("error")
    told = error.get("message") if isinstance(error, dict) else error
    return str(told)[:MAX_TOLD]


class _named:
    """Errors of the connection by their kind."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, httpx.TimeoutException):
            raise EndpointFailed("timeout", f"silence for too long ({type(error).__name__})") from None
        if isinstance(error, httpx.ConnectError):
            raise EndpointFailed("connect", str(error) or "no connection") from None
        if isinstance(error, httpx.TransportError):
            raise EndpointFailed("disconnected", str(error) or type(error).__name__) from None
        if isinstance(error, ValueError):
            raise EndpointFailed("protocol", str(error)) from None
