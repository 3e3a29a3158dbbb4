"""HTTP for the hub: ranges, redirects, retries and time limits; the token goes to the hub's own host only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from degarble.checkpoint.hub_address import HubAddress
from degarble.errors import HubError
from degarble.version import __version__

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
MAX_SKIPPED_BYTES = 16 * 1024 * 1024
"""A server that ignores Range sends the file from its start; this much is read past before giving up."""


class _Retry(Exception):
    """A failure that may pass; carries what to say if it does not, and how long the server asked to wait."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class HubClient:
    """Fetches byte ranges. Safe to use from several threads."""

    def __init__(
        self,
        address: HubAddress,
        *,
        attempts: int = 4,
        backoff_s: float = 0.5,
        max_wait_s: float = 20.0,
        timeout_s: float = 20.0,
        deadline_s: float = 300.0,
    ) -> None:
        import httpx

        self._address = address
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._max_wait_s = max_wait_s
        self._deadline_s = deadline_s
        self._http = httpx.Client(timeout=timeout_s, follow_redirects=False)

    def get(self, url: str, what: str, start: int, end: int, *, exact: bool = True) -> bytes:
        """Bytes [start, end) of a resource; with `exact=False` a shorter body is fine, a longer one an error.

        Raises HubError with what to do.
        """
        for attempt in range(self._attempts):
            try:
                return self._attempt(url, what, start, end, exact)
            except _Retry as failure:
                if attempt + 1 == self._attempts:
                    raise HubError(f"{self._address.text}: {what}: {failure}") from None
                wait_s = self._backoff_s * 2**attempt if failure.wait_s is None else failure.wait_s
                time.sleep(min(wait_s, self._max_wait_s))
        raise AssertionError("at least one attempt is made")

    def _attempt(self, url: str, what: str, start: int, end: int, exact: bool) -> bytes:
        import httpx

        give_up_at = time.monotonic() + self._deadline_s
        try:
            for _ in range(MAX_REDIRECTS + 1):
                with self._http.stream("GET", url, headers=self._headers(url, start, end, exact)) as response:
                    if response.has_redirect_location:
                        url = self._next_url(url, response.headers["location"], what)
                        continue
                    self._judge(response, what)
                    return self._body(response, what, start, end, exact, give_up_at)
        except httpx.TimeoutException:
            raise _Retry("no answer in time") from None
        except httpx.TransportError as error:
            raise _Retry(f"no connection ({error}); HF_HUB_OFFLINE=1 uses the local cache") from None
        except httpx.InvalidURL as error:
            raise HubError(
                f"{self._address.text}: {what}: the hub redirects to an address that is none: {error}"
            ) from None
        raise HubError(f"{self._address.text}: {what}: more than {MAX_REDIRECTS} redirects")

    def _headers(self, url: str, start: int, end: int, exact: bool) -> dict[str, str]:
        headers = {"User-Agent": f"degarble/{__version__}", "Accept-Encoding": "identity"}
        if exact:
            headers["Range"] = f"bytes={start}-{end - 1}"
        if self._address.token and urlsplit(url).netloc == self._address.host:
            headers["Authorization"] = f"Bearer {self._address.token}"
        return headers

    def _next_url(self, url: str, location: str, what: str) -> str:
        target = urljoin(url, location)
        scheme = urlsplit(target).scheme
        if scheme not in ("http", "https") or (scheme == "http" and urlsplit(url).scheme == "https"):
            raise HubError(f"{self._address.text}: {what}: a redirect to {target[:200]!r} was not followed")
        return target

    def _judge(self, response: httpx.Response, what: str) -> None:
        status = response.status_code
        if status in (200, 206):
            return
        address = self._address
        if status == 429 or status >= 500:
            raise _Retry(f"the hub answers {status}", _retry_after(response.headers.get("retry-after")))
        code = response.headers.get("x-error-code", "")
        if code == "GatedRepo":
            reason = (
                f"the repository is gated: accept its terms at {address.endpoint}/{address.repo}, then "
                "`hf auth login` or set HF_TOKEN"
            )
        elif code == "RevisionNotFound":
            reason = f"there is no revision {address.revision!r}"
        elif code == "EntryNotFound":
            reason = "there is no such file in this revision"
        elif status in (401, 403) and address.token is None:
            reason = "it does not exist, or it is private or gated: `hf auth login` or set HF_TOKEN"
        elif status in (401, 403):
            reason = "the token in use gives no access: check HF_TOKEN, or ask the owner for access"
        elif status == 404:
            reason = "there is no such repository, revision or file"
        else:
            reason = f"the hub answers {status}"
        raise HubError(f"{address.text}: {what}: {reason} ({status})")

    def _body(self, response: httpx.Response, what: str, start: int, end: int, exact: bool, give_up_at: float) -> bytes:
        """Never more bytes than were asked for, whatever the server sends."""
        skip = 0
        if exact and response.status_code == 206:
            if not response.headers.get("content-range", "").startswith(f"bytes {start}-"):
                raise HubError(f"{self._address.text}: {what}: the server sent another range than byte {start} on")
        elif start:
            skip = start
            if skip > MAX_SKIPPED_BYTES:
                raise HubError(f"{self._address.text}: {what}: the server cannot send a part of a file (no Range)")
        wanted = end - start
        parts: list[bytes] = []
        have = -skip
        for chunk in response.iter_raw():
            parts.append(chunk[max(0, -have) :] if have < 0 else chunk)
            have += len(chunk)
            if have >= wanted:
                break
            if time.monotonic() > give_up_at:
                raise _Retry(f"slower than {wanted} bytes in {self._deadline_s:g} s")
        if not exact and have > wanted:
            raise HubError(f"{self._address.text}: {what}: longer than {wanted} bytes")
        if exact and have < wanted:
            raise _Retry(f"the connection ended after {max(0, have)} of {wanted} bytes")
        return b"".join(parts)[:wanted]


def _retry_after(value: str | None) -> float | None:
    """Seconds, where the server gives seconds; dates are left to the usual backing off."""
    return float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 6 else None
