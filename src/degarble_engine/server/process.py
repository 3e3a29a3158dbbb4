"""The process: a socket, timeouts for those who do not speak, and an end that lets running answers finish."""

from __future__ import annotations

import asyncio
import logging
import signal
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from degarble_engine.server.engine_loop import EngineLoop

log = logging.getLogger("degarble.server")
MAX_HEADER_BYTES = 1 << 16
MAX_CONNECTIONS = 1024
KEEP_ALIVE_SECONDS = 10


def protocol(header_seconds: float) -> type[H11Protocol]:
    """HTTP/1.1 that closes a connection whose first request has no complete headers in time."""

    class TimedProtocol(H11Protocol):
        """uvicorn's own has a limit between requests only."""

        _silence: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """Start the clock."""
            super().connection_made(transport)
            self._silence = self.loop.call_later(header_seconds, self._close_silent)

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop it."""
            if self._silence is not None:
                self._silence.cancel()
            super().connection_lost(exc)

        def _close_silent(self) -> None:
            if self.cycle is None:  # no request has begun
                self.transport.close()

    return TimedProtocol


class DrainingServer(uvicorn.Server):
    """At SIGTERM: nothing new is taken, what runs goes on until it ends or the time is over."""

    def __init__(self, config: uvicorn.Config, loop: EngineLoop) -> None:
        super().__init__(config)
        self._engine_loop = loop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, a second one ends at once."""
        self._engine_loop.is_draining = True
        super().handle_exit(sig, frame)

    async def startup(self, sockets: Any = None) -> None:
        """Say where it listens, also for port 0."""
        await super().startup(sockets)
        for server in self.servers:
            for socket in server.sockets:
                host, port = socket.getsockname()[:2]
                log.warning("ready at http://%s:%d", f"[{host}]" if ":" in host else host, port)


def server(
    app: Starlette, loop: EngineLoop, *, host: str, port: int, header_seconds: float, drain_seconds: int
) -> DrainingServer:
    """A server that is not running yet."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol(header_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )
    return DrainingServer(config, loop)


def run(made: DrainingServer) -> None:
    """Serve until a signal."""
    for one in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises it again after the drain, which then means nothing
        signal.signal(one, lambda *_: None)
    made.run()
