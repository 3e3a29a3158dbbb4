"""Bytes of a client to a typed request: bounded in size, time and depth, and whatever is wrong is named."""

from __future__ import annotations

import asyncio
import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from degarble_engine.server.api_error import ApiError, ClientGone, invalid
from degarble_engine.server.limits import Limits

Wanted = TypeVar("Wanted")
BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A whole string, whose brackets do not count, or a bracket. A string without an end goes to the end of the text: were
it no match, each of a million escaped quotes in it would be tried as a beginning."""
PLACE = re.compile(r"`\$\.?([^`]*)`$")
FIELD = re.compile(r"(?:unknown|required) field `([^`]*)`")


async def read_body(request: Request, limits: Limits) -> bytes:
    """All of the body. Raises ApiError for one that is too long or too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # also keeps a browser's cross-site forms out, which need no permission
        raise ApiError(415, f"Content-Type must be application/json, found {kind or 'none'!r}")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limits.body_bytes:
        raise _too_long(limits)
    data = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                data += chunk
                if len(data) > limits.body_bytes:
                    raise _too_long(limits)
    except TimeoutError:
        raise ApiError(408, f"the body was not complete after {limits.body_seconds:g} s", code="timeout") from None
    except ClientDisconnect:
        raise ClientGone from None
    return bytes(data)


def decode(data: bytes, wanted: type[Wanted], limits: Limits) -> Wanted:
    """The request. Raises ApiError that names the field and what was expected there."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8: byte {error.start} is {data[error.start]:#04x}", None, "json") from None
    _require_shallow(text, limits.json_depth)
    try:
        return msgspec.json.decode(text, type=wanted)
    except msgspec.ValidationError as error:
        raise invalid(str(error), _param(str(error)), "invalid_type") from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise invalid(f"the body is not JSON: {error}", None, "json") from None


async def read(request: Request, wanted: type[Wanted], limits: Limits) -> Wanted:
    """Both."""
    return decode(await read_body(request, limits), wanted, limits)


def _too_long(limits: Limits) -> ApiError:
    message = f"the body is longer than {limits.body_bytes} bytes"
    return ApiError(413, message, code="body_too_large", headers={"connection": "close"})


def _require_shallow(text: str, most: int) -> None:
    depth = 0
    for found in BRACKET.finditer(text):
        first = text[found.start()]
        if first in "[{":
            depth += 1
            if depth > most:
                raise invalid(f"the body nests lists and objects more than {most} deep", None, "json_depth")
        elif first in "]}":
            depth -= 1


def _param(message: str) -> str | None:
    place, field = PLACE.search(message), FIELD.search(message)
    parts = [found[1] for found in (place, field) if found is not None and found[1]]
    return ".".join(parts) or None
