"""What a client may ask of the server at most."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are for a small server; all can be set on the command line."""

    body_bytes: int = 2 << 20
    body_seconds: float = 30.0
    """Until the last byte of the body is here."""
    header_seconds: float = 15.0
    """Until the headers of a new connection are here."""
    json_depth: int = 64
    """Lists and objects inside each other."""
    request_seconds: float = 600.0
    """From the first token of the prompt to the end of the answer."""
    sequences: int = 64
    """Prompts times `n` of one request."""
    messages: int = 2048
    queued: int = 256
    """Sequences that wait for a place in the batch; beyond: 429."""
