"""Answers that end when the client does: server-sent events, and work that is given up at a disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from degarble_engine.server.api_error import ApiError, ClientGone

Result = TypeVar("Result")
DONE = b"data: [DONE]\n\n"
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work. Raises ClientGone, after the work was cancelled, if the client leaves before."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(until_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


class EventStream(Response):
    """One event a chunk, then [DONE]. An ApiError on the way becomes an event, as OpenAI's client understands it."""

    def __init__(
        self,
        chunks: AsyncIterator[Any],
        headers: Mapping[str, str],
        on_end: Callable[[bool, ApiError | None], None],
    ) -> None:
        """`on_end(is_gone, error)` is called once, whatever happens."""
        super().__init__(status_code=200, headers={**HEADERS, **headers})
        del self.headers["content-length"]
        self._chunks, self._on_end = chunks, on_end
        self._error: ApiError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end or until nobody listens."""
        is_gone = True
        try:
            await unless_gone(receive, self._pump(send))
            is_gone = False
        except (ClientGone, OSError):
            pass
        finally:
            self._on_end(is_gone, self._error)

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self._chunks:
                await _send(send, b"data: " + msgspec.json.encode(chunk) + b"\n\n")
        except ApiError as error:
            self._error = error
            await _send(send, b"data: " + msgspec.json.encode(error.body) + b"\n\n")
        await _send(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
