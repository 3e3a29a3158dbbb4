"""Text to ids, by the library that owns the format; tests, stress runs and servers need it, decoding does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.sentencepiece_model import open_sentencepiece
from degarble.tokenizer.special_texts import finder_of


class Encoder:
    """Encodes with `tokenizers` or `sentencepiece`; a GGUF vocabulary, which has no library here, by longest match."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._specials = finder_of(tuple(token.content for token in tokenizer.added_tokens.values() if token.content))

    @property
    def method(self) -> str:
        """tokenizers, sentencepiece, or longest-match: valid ids that spell the text, but not the ones a model saw."""
        if not self._tokenizer.raw:
            return "longest-match"
        return "tokenizers" if self._tokenizer.file.endswith(".json") else "sentencepiece"

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS or EOS; the text of an added token becomes that token."""
        return self._encode(text)

    def encode_as_text(self, text: str) -> list[int]:
        """Ids of a text that a user typed: the text of an added token is spelled out, and never becomes the token.

        The library's own switch (`encode_special_tokens`) spares tokens that are not flagged special, such as
        DeepSeek-V3's `<｜User｜>`. Here the text is cut after the first character of each; the two parts cannot match.
        """
        ids: list[int] = []
        done = 0
        while (found := self._specials.find(text, done)) >= 0:
            ids += self._plain(text[done : found + 1])
            done = found + 1
        return ids + self._plain(text[done:])

    def _plain(self, text: str) -> list[int]:
        return self._encode(text) if text else []

    @cached_property
    def _encode(self) -> Callable[[str], list[int]]:
        if self.method == "tokenizers":
            return _with_tokenizers(self._tokenizer.raw)
        if self.method == "sentencepiece":
            model = open_sentencepiece(self._tokenizer.raw, self._tokenizer.file)
            return lambda text: [int(at) for at in model.encode(text)]
        return LongestMatch(self._tokenizer).encode


def library_tokenizer(tokenizer: Tokenizer) -> Any:
    """The `tokenizers.Tokenizer` of the same file."""
    from tokenizers import Tokenizer as Library

    return Library.from_str(tokenizer.raw.decode())


def _with_tokenizers(raw: bytes) -> Callable[[str], list[int]]:
    from tokenizers import Tokenizer as Library

    library = Library.from_str(raw.decode())
    return lambda text: list(library.encode(text, add_special_tokens=False).ids)


class LongestMatch:
    """Spells bytes with the longest tokens that fit, from the left."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        hidden = frozenset(tokenizer.added_tokens)
        pieces = enumerate(tokenizer.table.pieces)
        self._ids = {piece: at for at, piece in pieces if piece and at not in hidden}
        self._longest = max(map(len, self._ids), default=0)

    def encode(self, text: str) -> list[int]:
        """Ids that spell the text; bytes that no token begins with are left out."""
        data = text.encode("utf-8", "surrogatepass")
        ids: list[int] = []
        at = 0
        while at < len(data):
            for end in range(min(len(data), at + self._longest), at, -1):
                token_id = self._ids.get(data[at:end])
                if token_id is not None:
                    ids.append(token_id)
                    at = end
                    break
            else:
                at += 1
        return ids
