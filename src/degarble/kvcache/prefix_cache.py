"""Blocks whose content is known, by a key over everything that decides it.

    key_0 = sha256(namespace root | extra_0 | ids_0)        key_i = sha256(key_{i-1} | extra_i | ids_i)

A key alone is no proof: on a hit the token ids, the extra parts and the parent's key are compared with what was stored,
so even a broken hash cannot serve another request's content. Only full, computed blocks are published; a block leaves
the map before it is handed out again (KVC627).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from degarble.kvcache.namespace import Namespace

Key = bytes


class Entry(NamedTuple):
    """What a published block holds."""

    key: Key
    parent: Key
    token_ids: tuple[int, ...]
    extra: bytes


def block_key(parent: Key, token_ids: Sequence[int], extra: bytes) -> Key:
    """Key of a block after its parent; the parent of a first block is the namespace's root."""
    head = len(parent).to_bytes(4, "little") + len(extra).to_bytes(4, "little")
    return sha256(head + parent + extra + array("q", token_ids).tobytes()).digest()


class PrefixCache:
    """Key -> block, and block -> entry."""

    def __init__(self) -> None:
        self._block_of: dict[Key, int] = {}
        self._entry_of: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def is_published(self, block: int) -> bool:
        """Whether others may come to share it at any time, so that nobody may write to it."""
        return block in self._entry_of

    def entry(self, block: int) -> Entry | None:
        """What a block is published with."""
        return self._entry_of.get(block)

    def find(self, parent: Key, token_ids: tuple[int, ...], extra: bytes) -> tuple[Key, int] | None:
        """The block with exactly this content, or None."""
        key = block_key(parent, token_ids, extra)
        block = self._block_of.get(key)
        if block is None:
            return None
        entry = self._entry_of[block]
        if entry.token_ids != token_ids or entry.parent != parent or entry.extra != extra:
            return None
        return key, block

    def publish(self, block: int, parent: Key, token_ids: tuple[int, ...], extra: bytes) -> tuple[Key, bool]:
        """Make a full, computed block findable; the first block with a content keeps it. Key, and whether it is new."""
        key = block_key(parent, token_ids, extra)
        if key in self._block_of or block in self._entry_of:
            return key, False
        self._block_of[key] = block
        self._entry_of[block] = Entry(key, parent, token_ids, extra)
        return key, True

    def withdraw(self, block: int) -> Entry | None:
        """Forget a block, since it is about to be rewritten."""
        entry = self._entry_of.pop(block, None)
        if entry is not None:
            del self._block_of[entry.key]
        return entry

    def with_continuations(self, blocks: Sequence[int]) -> list[int]:
        """Those of the blocks that are published, and every published block whose chain of keys goes through one."""
        by_parent: dict[Key, list[int]] = {}
        for block, entry in self._entry_of.items():
            by_parent.setdefault(entry.parent, []).append(block)
        found = dict.fromkeys(block for block in blocks if block in self._entry_of)
        ahead = list(found)
        while ahead:
            for child in by_parent.get(self._entry_of[ahead.pop()].key, ()):
                if child not in found:
                    found[child] = None
                    ahead.append(child)
        return list(found)

    def problems(self) -> list[str]:
        """Broken invariants of the map alone."""
        found = [
            f"block {block} is published under a key that leads to {self._block_of.get(entry.key)}"
            for block, entry in self._entry_of.items()
            if self._block_of.get(entry.key) != block
        ]
        found += [
            f"block {block}: its key is not that of its content"
            for block, entry in self._entry_of.items()
            if block_key(entry.parent, entry.token_ids, entry.extra) != entry.key
        ]
        if len(self._block_of) != len(self._entry_of):
            found.append(f"{len(self._block_of)} keys for {len(self._entry_of)} published blocks")
        return found


def matching_blocks(
    cache: PrefixCache, namespace: Namespace, token_ids: Sequence[int], edges: Sequence[int]
) -> list[tuple[Key, int]]:
    """Keys and blocks of the longest cached prefix; block c holds positions [edges[c], edges[c + 1])."""
    found: list[tuple[Key, int]] = []
    parent = namespace.root
    for start, end in pairwise(edges):
        hit = cache.find(parent, tuple(token_ids[start:end]), namespace.extra(start, end))
        if hit is None:
            break
        found.append(hit)
        parent = hit[0]
    return found
