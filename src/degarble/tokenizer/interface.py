"""What every source of a tokenizer is read into: pieces by id, which of them are added or special, and their bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import msgspec

from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.merges import Merges


class AddedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that stands outside the model's own vocabulary rules: it is found in text before anything else."""

    token_id: int
    content: str
    special: bool
    """Whether `skip_special_tokens` hides it. DeepSeek-V3's `<｜User｜>` is added and not special."""
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """One tokenizer as published, whatever it was stored in. Nothing here needs another library."""

    file: str
    """The file it was read from, relative to the checkpoint."""
    kind: str
    """byte-level, byte-fallback, metaspace, wordpiece or plain: how ids become bytes."""
    pieces: Sequence[str | None]
    """Id -> the string as stored; None where an id below the highest has none."""
    added_tokens: Mapping[int, AddedToken]
    build_table: Callable[[], ByteTable] = field(repr=False)
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    """Stored parts, for those who compare: normalizer, pre_tokenizer, post_processor, decoder, model without its
    vocabulary; or the GGUF keys below `tokenizer.ggml.`."""
    declared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """File -> role -> token string, as each file declares it; they may contradict each other."""
    problems: tuple[str, ...] = ()
    """What is wrong with the stored vocabulary and could be read past: an id given twice."""
    raw: bytes = field(default=b"", repr=False)
    """The stored file where an encoder needs it (tokenizer.json, tokenizer.model)."""
    merges: Merges = field(default_factory=Merges, repr=False)
    """Of a BPE vocabulary; empty for others."""

    @cached_property
    def table(self) -> ByteTable:
        """Id -> bytes."""
        return self.build_table()

    @property
    def num_ids(self) -> int:
        """One more than the highest id that has a string."""
        return len(self.pieces)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that `skip_special_tokens` hides."""
        return frozenset(token.token_id for token in self.added_tokens.values() if token.special)

    @cached_property
    def ids_by_piece(self) -> Mapping[str, int]:
        """Stored string -> id, the lowest where a string was stored twice."""
        size = len(self.pieces)
        ids: dict[str | None, int] = dict(zip(reversed(self.pieces), range(size - 1, -1, -1), strict=True))
        ids.pop(None, None)
        ids.update({token.content: token.token_id for token in self.added_tokens.values()})
        return cast("Mapping[str, int]", ids)
