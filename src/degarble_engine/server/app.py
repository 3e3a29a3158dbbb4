"""The ASGI application: routes, keys, and errors in OpenAI's form."""

from __future__ import annotations

import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from degarble_engine.server import page_routes, status_routes, token_routes
from degarble_engine.server.api_error import CLIENT_CLOSED, GONE, ApiError, ClientGone
from degarble_engine.server.chat import chat
from degarble_engine.server.completions import complete
from degarble_engine.server.engine_loop import EngineStopped
from degarble_engine.server.event_stream import EventStream
from degarble_engine.server.openapi import openapi
from degarble_engine.server.service import Service
from degarble_engine.telemetry.account import REQUEST_ID, Account
from degarble_engine.telemetry.json_log import FIELDS

log = logging.getLogger("degarble.server")
Endpoint = Callable[[Service, Request], Awaitable[Response]]
ROUTES: Sequence[tuple[str, str, Endpoint, bool]] = (
    ("POST", "/v1/chat/completions", chat, True),
    ("POST", "/v1/completions", complete, True),
    ("GET", "/v1/models", status_routes.models, True),
    ("GET", "/v1/models/{name:path}", status_routes.model, True),
    ("POST", "/tokenize", token_routes.tokenize, True),
    ("POST", "/detokenize", token_routes.detokenize, True),
    ("GET", "/version", status_routes.version, False),
    ("GET", "/health", status_routes.health, False),
    ("GET", "/ready", status_routes.ready, False),
    ("GET", "/metrics", status_routes.metrics, False),
    ("GET", "/openapi.json", openapi, False),
    ("GET", "/state", page_routes.state, True),
    ("GET", "/", page_routes.page, False),
    ("GET", "/page.css", page_routes.style, False),
    ("GET", "/page.js", page_routes.script, False),
)
"""Method, path, endpoint, and whether it needs a key."""


def application(service: Service, api_keys: Sequence[str] = ()) -> Starlette:
    """`api_keys`: any of them opens the door; none: it is open."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.loop.start()
        try:
            yield
        finally:
            await service.close()

    keys = [key.encode() for key in api_keys]
    routes = [
        Route(path, partial(_guarded, service, keys if needs_key else [], endpoint), methods=[method])
        for method, path, endpoint, needs_key in ROUTES
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _not_found})


async def _guarded(service: Service, keys: Sequence[bytes], endpoint: Endpoint, request: Request) -> Response:
    """Every request passes here, has an account, and every error leaves in one form."""
    account = Account(request.method, request.url.path, request.headers, service.sinks)
    request.state.account = account
    code: str | None = None
    try:
        _require_key(request, keys)
        response = await endpoint(service, request)
    except ApiError as error:
        response, code = _told(error), error.kind
    except EngineStopped as error:
        response, code = _told(ApiError(503, str(error), code="not_ready")), "not_ready"
    except ClientGone:
        response, code = Response(status_code=CLIENT_CLOSED), GONE
    except Exception:
        fields = {"request_id": account.request_id}
        log.exception("%s %s failed", request.method, request.url.path, extra={FIELDS: fields})
        response, code = _told(_bug()), "internal_error"
    if code is not None and code != GONE:
        service.metrics.count("rejected", value=code)
    response.headers[REQUEST_ID] = account.request_id
    if not isinstance(response, EventStream):  # a stream closes its account at its own end
        account.close(response.status_code, code)
    return response


def _bug() -> ApiError:
    return ApiError(500, "the server failed, which is a bug of ours", code="internal_error")


def _require_key(request: Request, keys: Sequence[bytes]) -> None:
    if not keys:
        return
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    offered = given.strip().encode("utf-8", "surrogateescape")
    matches = [hmac.compare_digest(offered, key) for key in keys]  # all of them, so that time says nothing
    if kind.lower() != "bearer" or not any(matches):
        raise ApiError(
            401, "a valid key is needed: Authorization: Bearer …", code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )  # fmt: skip


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(path for _, path, _, _ in ROUTES)
    message = f"{request.method} {request.url.path}: {error.detail}; there are {known}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    return _told(ApiError(error.status_code, message, code=code, headers=error.headers))


def _told(error: ApiError) -> Response:
    return Response(msgspec.json.encode(error.body), error.status, headers=error.headers, media_type="application/json")
