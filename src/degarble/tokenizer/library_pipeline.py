"""Stored parts of a tokenizer, run by the library that defines them, and without its vocabulary.

Loading a vocabulary of 262,000 pieces takes the library three seconds; a normaliser, a pre-tokenizer and a decoder do
not look at it, so they are loaded around an empty one in less than a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from degarble.errors import DegarbleError


class LibraryRefused(DegarbleError):
    """The tokenizers library does not accept a stored part, or fails while it runs."""


class LibraryPipeline:
    """The parts that were given; the others do nothing."""

    def __init__(self, **parts: Mapping[str, Any] | None) -> None:
        """Take any of normalizer, pre_tokenizer and decoder. Raises LibraryRefused."""
        from tokenizers import Tokenizer as Library

        document: dict[str, Any] = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "vocab": {}, "merges": []},
            **parts,
        }
        self._library = _guarded(lambda: Library.from_str(json.dumps(document)))

    def normalize(self, text: str) -> str:
        """The text that the pre-tokenizer sees."""
        step = self._library.normalizer
        return text if step is None else str(_guarded(lambda: step.normalize_str(text)))

    def pre_tokens(self, text: str) -> list[str]:
        """The strings that are looked up in the vocabulary."""
        step = self._library.pre_tokenizer
        text = self.normalize(text)
        return [text] if step is None else [part for part, _ in _guarded(lambda: step.pre_tokenize_str(text))]

    def decode(self, tokens: Sequence[str]) -> str:
        """The text of these tokens; without a decoder the library joins them with spaces."""
        step = self._library.decoder
        return " ".join(tokens) if step is None else str(_guarded(lambda: step.decode(list(tokens))))


def _guarded(call: Any) -> Any:
    """The library's panics are no Exception; they are told apart from a user's Ctrl-C."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise LibraryRefused(f"{type(error).__name__}: {str(error)[:200]}") from None
