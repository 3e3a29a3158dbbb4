"""HTTP to one endpoint within bounds: bytes, seconds, requests a second, and a key that goes nowhere else.

An endpoint is not trusted. Bodies are read in pieces and cut off at a limit; compressed ones are refused, since a few bytes
of them may become gigabytes; redirects are not followed, as the key would go along; the key is wiped out of all that comes
back, so that no report can hold it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import msgspec

from degarble.errors import UsageError

JSON = "application/json"
STREAM = "text/event-stream"
WIPED = "[key]"
TOO_EARLY_TO_JUDGE = frozenset((408, 425, 429))
"""Statuses of the 4xx that say nothing of what an endpoint offers."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Of every single request, and between requests."""

    answer_bytes: int = 4 << 20
    answer_seconds: float = 30.0
    interval_seconds: float = 0.02
    """Between the starts of two requests."""
    budget_seconds: float = 60.0
    """Of all requests together."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back; `failure` says why it is no good."""

    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    failure: str | None = None
    is_refused: bool = False

    @property
    def text(self) -> str:
        """The body for reading, whatever is in it."""
        return self.body.decode("utf-8", "replace")


class Connection:
    """One endpoint. Safe for threads."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        limits: Limits | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`transport`: what answers instead of the network, for tests and demonstrations."""
        self.address = base_of(url)
        self.limits = limits or Limits()
        auth = _login_of(url)
        self._secrets = [secret for secret in (key, auth and auth[1]) if secret]
        self._end = time.monotonic() + self.limits.budget_seconds
        self._next = 0.0
        self._lock = threading.Lock()
        headers = {"accept-encoding": "identity", "user-agent": "degarble-probe"}
        if key:
            if not key.isascii() or not key.isprintable():
                raise UsageError("the API key holds characters that no header can carry")
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx.Client(headers=headers, auth=auth, follow_redirects=False, transport=transport)

    @property
    def seconds_left(self) -> float:
        """Of the budget."""
        return self._end - time.monotonic()

    def close(self) -> None:
        """Give the sockets back."""
        self._client.close()

    def get(self, path: str, accept: str = JSON) -> Reply:
        """One document."""
        return self._request("GET", path, None, accept)

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """One question."""
        return self._request("POST", path, body, STREAM if body.get("stream") else JSON)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None, accept: str) -> Reply:
        self._pace()
        seconds = min(self.limits.answer_seconds, self.seconds_left)
        if seconds <= 0:
            return Reply(failure=f"the budget of {self.limits.budget_seconds:g} s was spent")
        end = time.monotonic() + seconds
        try:
            with self._opened(method, path, body, accept, seconds) as response:
                return self._read(response, end, seconds)
        except httpx.TimeoutException:
            return Reply(failure=f"no answer within {seconds:.3g} s")
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, ValueError) as error:
            return Reply(failure=self._wiped(f"{type(error).__name__}: {error}"))

    @contextmanager
    def _opened(
        self, method: str, path: str, body: Mapping[str, Any] | None, accept: str, seconds: float
    ) -> Iterator[httpx.Response]:
        with self._client.stream(
            method, self.address + path, json=body, headers={"accept": accept}, timeout=seconds
        ) as response:
            yield response

    def _read(self, response: httpx.Response, end: float, seconds: float) -> Reply:
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding not in ("", "identity"):
            return Reply(
                status=response.status_code, failure=f"a body encoded as {encoding[:40]!r}, which was not asked for"
            )
        body, cut = bytearray(), None
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > self.limits.answer_bytes:
                cut = f"an answer of more than {self.limits.answer_bytes} bytes"
            elif time.monotonic() > end:
                cut = f"an answer that is not over within {seconds:.3g} s"
            if cut is not None:
                break
        headers = {name.lower(): self._wiped(value) for name, value in response.headers.items()}
        reply = Reply(status=response.status_code, headers=headers, body=self._wiped_bytes(bytes(body)), failure=cut)
        return reply if cut is not None or 200 <= reply.status < 300 else _refusal(reply)

    def _pace(self) -> None:
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self.limits.interval_seconds
        if start > now:
            time.sleep(start - now)

    def _wiped(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, WIPED)
        return text

    def _wiped_bytes(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret.encode(), WIPED.encode())
        return data


def base_of(url: str) -> str:
    """The address without `/v1` at its end, and without a user and password. Raises UsageError for what is none."""
    try:
        parts = urlsplit(url.strip())
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable():
        raise UsageError(
            f"{url.rpartition('@')[2][:200]!r}: no address of an endpoint: expected http://HOST:PORT or https://HOST/…"
        )
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/').removesuffix('/v1')}"


def _login_of(url: str) -> tuple[str, str] | None:
    """User and password of an address such as `http://user:password@host`."""
    parts = urlsplit(url.strip())
    return (unquote(parts.username), unquote(parts.password or "")) if parts.username else None


def _refusal(reply: Reply) -> Reply:
    if 300 <= reply.status < 400:
        place = urlsplit(reply.headers.get("location", ""))
        where = f"{place.scheme}://{place.netloc.rpartition('@')[2]}" if place.netloc else "another path"
        return msgspec.structs.replace(
            reply, failure=f"status {reply.status}: a redirect to {where}, which is not followed"
        )
    is_refused = (400 <= reply.status < 500 and reply.status not in TOO_EARLY_TO_JUDGE) or reply.status == 501
    said = " ".join(reply.text[:300].split())
    return msgspec.structs.replace(
        reply, failure=f"status {reply.status}: {said or 'without a word'}", is_refused=is_refused
    )
