"""What a client is told when it gets no answer, in OpenAI's form: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
CLIENT_CLOSED = 499
"""nginx's status for a client that is gone; nobody sees it but a log."""
GONE = "client_gone"
MAX_MESSAGE = 500
"""Characters; what a client sent may be quoted in it."""


class ApiError(Exception):
    """Ends a request with a status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`param`: the field that is at fault, dotted."""
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """One word for metrics and logs."""
        return self.code or str(self.status)

    @property
    def body(self) -> dict[str, Any]:
        """As it is sent."""
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        message = self.message[:MAX_MESSAGE].encode("utf-8", "backslashreplace").decode()
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}


class ClientGone(Exception):
    """The client closed the connection: nobody is left to be told anything."""


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """400: the request itself is wrong."""
    return ApiError(400, message, param=param, code=code)
