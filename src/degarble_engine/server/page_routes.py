"""GET /, its two files, and GET /state: a look at the engine, and a box to chat in."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from degarble.version import __version__
from degarble_engine.server.live_state import live_state
from degarble_engine.server.service import Service

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""Text of a model is shown as text; were it markup all the same, the policy would neither run nor load anything."""


async def page(service: Service, request: Request) -> Response:
    """The page."""
    return _file("index.html", "text/html")


async def style(service: Service, request: Request) -> Response:
    """Its colours."""
    return _file("page.css", "text/css")


async def script(service: Service, request: Request) -> Response:
    """What moves it."""
    return _file("page.js", "text/javascript")


async def state(service: Service, request: Request) -> Response:
    """What the page shows, as JSON. 503 where the engine does not answer any more."""
    body = {
        "model": service.model.name,
        "version": __version__,
        "ready": service.loop.is_ready,
        "failure": service.loop.failure,
        "counters": service.metrics.counters(),
        **await service.loop.ask(live_state),
    }
    return Response(msgspec.json.encode(body), headers={"cache-control": "no-store"}, media_type="application/json")


def _file(name: str, kind: str) -> Response:
    return Response(_read(name), headers=HEADERS, media_type=kind)


@cache
def _read(name: str) -> bytes:
    return resources.files("degarble_engine.server.page").joinpath(name).read_bytes()
