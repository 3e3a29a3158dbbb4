"""Evidence about token ids: which are ordinary words of the vocabulary, and which are added, reserved or padding."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import JsonFile
from degarble.evidence.store import provides

MAX_TOKENIZER_BYTES = 128 << 20
GGUF_NORMAL = 1
"""`tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte."""

RESERVED = re.compile(
    r"reserved|unused|extra[_-]?id|dummy|placeholder|\A<[^<>\s]{2,}>\Z|\A\[[a-z_]+\d*\]\Z", re.IGNORECASE
)
"""Contents of tokens that no text produces: some GGUF files give control tokens the type of ordinary ones."""


class _Added(msgspec.Struct):
    id: int
    content: str = ""


class _Model(msgspec.Struct):
    vocab: Any = None


class _TokenizerFile(msgspec.Struct):
    model: _Model = msgspec.field(default_factory=_Model)
    added_tokens: list[_Added] = msgspec.field(default_factory=list)


class OrdinaryTokens:
    """Read only when a check has an id to ask about: a tokenizer file has up to 35 MB."""

    def __init__(self, source: Source, json_files: Mapping[str, JsonFile], gguf: GgufFile | None) -> None:
        self._source, self._json_files, self._gguf = source, json_files, gguf

    @property
    def is_known(self) -> bool:
        """Whether there is a tokenizer to tell."""
        return bool(self._contents)

    def is_ordinary(self, token_id: int) -> bool:
        """Whether text can produce this id, as far as the tokenizer says."""
        content = self._contents.get(token_id)
        return content is not None and not RESERVED.search(content)

    def content(self, token_id: int) -> str | None:
        """The token's text as the tokenizer spells it."""
        return self._contents.get(token_id)

    @cached_property
    def _contents(self) -> dict[int, str]:
        """Ordinary id -> content."""
        if self._gguf is not None:
            return dict(self._from_gguf(self._gguf.metadata))
        found, added = self._from_file()
        decoder = self._object("tokenizer_config.json", "added_tokens_decoder")
        added |= {int(number) for number in decoder if re.fullmatch(r"[0-9]{1,9}", number)}
        added |= {number for number in self._object("added_tokens.json").values() if isinstance(number, int)}
        return {number: content for number, content in found.items() if number not in added}

    @staticmethod
    def _from_gguf(metadata: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
        tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
        if not isinstance(tokens, list):
            return
        for number, content in enumerate(tokens):
            is_normal = not isinstance(types, list) or number >= len(types) or types[number] == GGUF_NORMAL
            if is_normal and isinstance(content, str):
                yield number, content

    def _from_file(self) -> tuple[dict[int, str], set[int]]:
        size = self._source.files().get("tokenizer.json", 0)
        if not 0 < size <= MAX_TOKENIZER_BYTES:
            vocab = self._object("vocab.json")
            return {number: str(token) for token, number in vocab.items() if isinstance(number, int)}, set()
        try:
            file = msgspec.json.decode(self._source.read("tokenizer.json"), type=_TokenizerFile)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}, set()
        return _contents_of(file.model.vocab), {token.id for token in file.added_tokens}

    def _object(self, name: str, key: str | None = None) -> Mapping[str, Any]:
        file = self._json_files.get(name)
        value = file.value if file is not None else None
        if key is not None:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}


def _contents_of(vocab: Any) -> dict[int, str]:
    """A dictionary token -> id, or (Unigram) a list of [token, score]."""
    if isinstance(vocab, dict):
        return {number: token for token, number in vocab.items() if isinstance(number, int)}
    if isinstance(vocab, list):
        rows = (row[0] if isinstance(row, list) and row else row for row in vocab)
        return {number: token for number, token in enumerate(rows) if isinstance(token, str)}
    return {}


@provides("ordinary_tokens")
def ordinary_tokens(source: Source, json_files: Mapping[str, JsonFile], gguf: GgufFile | None = None) -> OrdinaryTokens:
    """Which ids text can produce."""
    return OrdinaryTokens(source, json_files, gguf)
