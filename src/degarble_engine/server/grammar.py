"""A form to masks over the vocabulary, by llguidance (Apache-2.0 or MIT): it walks a trie of all tokens' bytes.

Where only one spelling can follow, the tokens are those that the model's own encoder writes for it; an encoder whose
tokens do not spell the text (one that writes a space in front of every text) is replaced by longest match there.

What a client can cost: schemas of 64 KiB, compiled in a thread beside the loop, under the library's own limits for
grammar and lexer (0.7 s measured for 2,000 optional properties); what exceeds them is refused, or ends that one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from degarble.tokenizer.interface import Tokenizer
from degarble_engine.server.api_error import ApiError, invalid
from degarble_engine.server.structured import Form

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_FORM_BYTES = 1 << 16
SPACES = r"[ \t\n\r]{1,20}"
"""Between the parts of JSON; without an end, a small model never leaves it."""
FORCED: dict[str, Any] = {"lenient": False, "whitespace_pattern": SPACES}
"""Beats what a schema says of itself: no keyword may be ignored in silence."""


class GrammarGuide:
    """See engine/guide.py."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size
        self._bits = np.zeros((vocab_size + 31) // 32, np.int32)

    def allowed(self) -> Tensor:
        """Bits to booleans; a few microseconds once the grammar is warm."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        booleans = np.unpackbits(self._bits.view(np.uint8), count=self._vocab_size, bitorder="little")
        return torch.from_numpy(booleans.view(np.bool_))

    def take(self, token_id: int) -> str | None:
        """See Guide."""
        if self._matcher.consume_token(token_id):
            return None
        return f"the grammar cannot be followed: {_first_line(self._matcher.get_error())}"

    def copy(self) -> GrammarGuide:
        """The same place in the same grammar, for another answer."""
        return GrammarGuide(self._matcher.deep_copy(), self._vocab_size)

    def warm(self) -> None:
        """Compute what the first mask needs. Raises ValueError where there is none."""
        is_empty = not bool(self.allowed().any())
        if self._matcher.is_error() or is_empty:
            raise ValueError(_first_line(self._matcher.get_error()) or "nothing can be written by it")


class Grammars:
    """Of one model. `guide` is for one thread at a time; guides may then go to another."""

    def __init__(
        self, tokenizer: Tokenizer, encode: Callable[[str], Sequence[int]], vocab_size: int, eos_ids: Sequence[int]
    ) -> None:
        """`encode`: a text without any special meaning in it."""
        self._tokenizer, self._encode = tokenizer, encode
        self._vocab_size, self._eos_ids = vocab_size, list(eos_ids)

    def guide(self, form: Form) -> GrammarGuide:
        """Raises ApiError that names the field."""
        try:
            from llguidance import LLMatcher, LLParserLimits
        except ModuleNotFoundError:
            message = "structured output needs llguidance on the server: pip install 'degarble[serve]'"
            raise ApiError(400, message, param=form.param, code="unsupported") from None
        if not self._eos_ids:
            raise invalid("the model has no token that could end a structured answer", form.param, "unsupported")
        try:
            grammar = _grammar(form, LLMatcher)
            limits = LLParserLimits(verbose_errors=False)
            matcher = LLMatcher(self._trie, grammar, log_level=0, limits=limits)
            if matcher.is_error():
                raise ValueError(_first_line(matcher.get_error()))
            guide = GrammarGuide(matcher, self._vocab_size)
            guide.warm()
        except ValueError as error:
            raise invalid(f"no grammar can be made of it: {error}", form.param, "grammar") from None
        return guide

    @cached_property
    def _trie(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(self), n_vocab=self._vocab_size, eos_token=self._eos_ids, slices=None)

    # What the library's wrapper asks of a tokenizer.

    bos_token_id = None

    @property
    def eos_token_id(self) -> int:
        """One of the ends."""
        return self._eos_ids[0]

    @property
    def special_token_ids(self) -> list[int]:
        """Ids that no text has."""
        return sorted(one for one in {*self._tokenizer.special_ids, *self._eos_ids} if one < self._vocab_size)

    @cached_property
    def tokens(self) -> list[bytes]:
        """Bytes of every id; none for one without a string."""
        return [piece or b"" for piece in self._tokenizer.table.pieces[: self._vocab_size]]

    def __call__(self, text: str) -> list[int]:
        """Tokens of a forced text. TypeError for bytes says to the library that it should decode them."""
        if not isinstance(text, str):
            raise TypeError("text is needed")
        ids = list(self._encode(text))
        data = text.encode("utf-8", "surrogatepass")
        return ids if b"".join(self.tokens[one] for one in ids) == data else self._longest(data)

    def _longest(self, data: bytes) -> list[int]:
        found: list[int] = []
        at = 0
        while at < len(data):
            size = next(n for n in range(min(self._max_bytes, len(data) - at), 0, -1) if data[at : at + n] in self._ids)
            found.append(self._ids[data[at : at + size]])
            at += size
        return found

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        special = set(self.special_token_ids)
        return {piece: at for at, piece in enumerate(self.tokens) if piece and at not in special}

    @cached_property
    def _max_bytes(self) -> int:
        return max(map(len, self._ids), default=1)


def _grammar(form: Form, matcher: type[LLMatcher]) -> str:
    """In the library's own form. Raises ValueError."""
    if form.schema is not None:
        schema = msgspec.json.encode(form.schema)
        _require_short(len(schema))
        return str(matcher.grammar_from_json_schema(schema.decode(), overrides=FORCED))
    if form.regex is not None:
        _require_short(len(form.regex))
        return str(matcher.grammar_from_regex(form.regex))
    choices = form.choices or ()
    _require_short(sum(map(len, choices)))
    return str(matcher.grammar_from_lark("start: " + " | ".join(_quoted(one) for one in choices)))


def _require_short(size: int) -> None:
    if size > MAX_FORM_BYTES:
        raise ValueError(f"it is {size} bytes long, more than {MAX_FORM_BYTES}")


def _quoted(text: str) -> str:
    r"""As a string of Lark, which is one of JSON; a lone surrogate cannot come out of JSON here."""
    return msgspec.json.encode(text).decode()


def _first_line(message: str) -> str:
    return " ".join(message.partition("\n<")[0].split())[:300]
