"""Namespaces (adapter, salt, image keys …) as one integer that is added to a token id.

A row of the cache holds a (token, namespace) pair; as one integer, a block's rows can be compared as lists. The empty
namespace is 0, so that rows of plain requests are the token ids themselves. Keys are part of the digest: an adapter
`x` and a salt `x` differ.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from degarble.trace.event import Namespace

SHIFT = 40
"""Bits for the token id."""


def base_of(namespace: Namespace) -> int:
    """The integer of a namespace; absent keys and keys without a value are the same."""
    if not namespace:
        return 0
    value: Any = namespace
    if isinstance(namespace, dict):
        value = {key: item for key, item in namespace.items() if item is not None and item != ""}
        if not value:
            return 0
    text = msgspec.json.encode(value, order="deterministic")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big") << SHIFT


def token_of(value: int) -> int:
    """The token id in a row's value."""
    return value & ((1 << SHIFT) - 1)


def namespace_of(value: int) -> int:
    """The namespace part of a row's value."""
    return value >> SHIFT
