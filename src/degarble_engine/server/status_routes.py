"""What can be asked without generating: models, health, readiness, metrics."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from degarble.version import __version__
from degarble_engine.guards.rail import GuardRail
from degarble_engine.server.service import Service
from degarble_engine.telemetry.exposition import CONTENT_TYPE


async def models(service: Service, request: Request) -> Response:
    """The one model."""
    return _json({"object": "list", "data": [_card(service)]})


async def model(service: Service, request: Request) -> Response:
    """One of the models."""
    service.require_model(request.path_params["name"])
    return _json(_card(service))


async def health(service: Service, request: Request) -> Response:
    """Whether the engine can still be trusted: 503 after it was given up."""
    failure = service.loop.failure
    body = {"status": "ok" if failure is None else "failed", "reason": failure, **_watched(service)}
    return _json(body, 503 if failure else 200)


async def ready(service: Service, request: Request) -> Response:
    """Whether requests are taken: 503 while the server drains."""
    is_ready = service.loop.is_ready
    return _json({"ready": is_ready}, 200 if is_ready else 503)


async def version(service: Service, request: Request) -> Response:
    """Of degarble."""
    return _json({"version": __version__})


async def metrics(service: Service, request: Request) -> Response:
    """In the text format, whatever the scraper would like better: see telemetry/exposition.py."""
    return Response(service.metrics.show(), headers={"content-type": CONTENT_TYPE})


def _watched(service: Service) -> dict[str, Any]:
    """Faults that were planted, and guards that are on but can see nothing: neither is ever left unsaid."""
    rail = GuardRail.of(service.model.engine)
    silent = rail.silent if rail is not None else {}
    planted = {"planted_faults": list(service.planted)} if service.planted else {}
    return {**planted, **({"silent_guards": silent} if silent else {})}


def _card(service: Service) -> dict[str, Any]:
    name = service.model.name
    return {
        "id": name, "object": "model", "created": service.created, "owned_by": "degarble", "root": name,
        "max_model_len": service.model.engine.max_model_len,
    }  # fmt: skip


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
