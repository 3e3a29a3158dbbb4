"""Endpoints that behave as a test wants, on a socket of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

Script = Callable[[int, asyncio.StreamWriter], Any]
"""Number of the post, and where to write; a coroutine."""


def event(**chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def text(words: str, finish_reason: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": words}, "finish_reason": finish_reason}])


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def endpoint(script: Script) -> AsyncIterator[str]:
    """Its address; GET answers with a list of one model."""
    posts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal posts
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):
            body = b'{"data": [{"id": "fake"}]}'
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body))
        else:
            posts += 1
            await script(posts, writer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
