"""A trace without its content: it can still be replayed and judged, and nobody can read what was said.

Token ids and hashes of blocks give a prompt away: ids are text, and a hash can be found by trying prompts. Salts of
namespaces are secrets of tenants. So all three are replaced, by a key that is made for one bundle and thrown away:

    id at position i     digest of the key and of all ids of the request up to i
    hash, namespace      digest of the key and the old value

Equal prefixes stay equal, which is what the invariants of hits and rows need; an id that comes twice looks different
each time, so that counting tells nothing. What is left open is the length of prompts and which of them share how much.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

ID_BYTES = 4


class Redactor:
    """One bundle's key, and the prefix of each request."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._prefixes: dict[object, list[bytes]] = {}
        """Request -> digest after each of its tokens, the one of its namespace first."""
        self._of_hash: dict[str, bytes] = {}
        """Old hash -> digest after the block's last token."""

    def events(self, events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Changed copies, in order."""
        for event in events:
            yield self._event(dict(event))

    def _event(self, event: dict[str, Any]) -> dict[str, Any]:
        kind = event["ev"]
        if kind == "req" and "ids" in event:
            prefix = self._prefixes[event["req"]] = [
                self._digest(repr(sorted((event.get("ns") or {}).items())).encode())
            ]
            event["ids"] = self._extend(prefix, event["ids"])
        elif kind in ("commit", "rollback") and "ids" in event:
            prefix = self._prefixes.get(event["req"], [b""])
            del prefix[event["at"] + 1 :]
            event["ids"] = self._extend(prefix, event["ids"])
        elif kind == "store":
            start = self._of_hash.get(event["parent"] or "", None)
            if start is None:
                start = self._digest(repr(sorted((event.get("ns") or {}).items())).encode())
            prefix = [start]
            event["ids"] = self._extend(prefix, event["ids"])
            self._of_hash[event["h"][0]] = prefix[-1]
        if event.get("ns"):
            event["ns"] = {"redacted": self._digest(repr(sorted(event["ns"].items())).encode()).hex()[:16]}
        if "h" in event:
            event["h"] = [self._hidden(one) for one in event["h"]]
        if event.get("parent") and kind in ("store", "hit"):
            event["parent"] = self._hidden(event["parent"])
        return event

    def _extend(self, prefix: list[bytes], ids: Sequence[int]) -> list[int]:
        found = []
        for token_id in ids:
            prefix.append(self._digest(prefix[-1] + token_id.to_bytes(8, "little")))
            found.append(int.from_bytes(prefix[-1][:ID_BYTES], "little"))
        return found

    def _hidden(self, name: str) -> str:
        return self._digest(name.encode()).hex()

    def _digest(self, data: bytes) -> bytes:
        return blake2b(data, key=self._key, digest_size=16).digest()
