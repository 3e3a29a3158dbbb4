"""What a checkpoint as a whole knows about a token: the tokenizer, and the files that may add tokens to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.sentencepiece_pieces import USER_DEFINED, texts_of_kind
from degarble.tokenizer.token_claims import TokenClaim

CONTROL_LOOK = re.compile(r"<[|｜].{1,100}[|｜]>|</?[A-Za-z][\w:./-]{0,60}>|\[/?[A-Z][A-Z_]{1,60}\]", re.DOTALL)
"""`<|im_end|>`, `<｜User｜>`, `</s>`, `<end_of_turn>`, `[INST]`: how makers write tokens that no text should hold."""
MAX_SHOWN = 60


class KnownTokens:
    """Texts and ids of one checkpoint.

    A tokenizer.json and a GGUF file are complete. A sentencepiece model is not: loaders append what added_tokens.json
    and `added_tokens_decoder` list past its end, and flag as special what they flag or what has a role.
    """

    def __init__(self, tokenizer: Tokenizer, claims: Iterable[TokenClaim]) -> None:
        self.tokenizer = tokenizer
        self.is_sentencepiece = tokenizer.file.endswith(".model")
        self.is_gguf = tokenizer.file.endswith(".gguf")
        self._further: dict[str, int] = {}
        self._flagged: set[str] = set()
        if self.is_sentencepiece:
            self._extend(claims)
        self.num_ids = max([tokenizer.num_ids, *(at + 1 for at in self._further.values())])
        self._further_text = {at: text for text, at in self._further.items()}

    def _extend(self, claims: Iterable[TokenClaim]) -> None:
        for claim in claims:
            if claim.text is None:
                continue
            if claim.role is not None or claim.special:
                self._flagged.add(claim.text)
            is_new = claim.text not in self.tokenizer.ids_by_piece and claim.text not in self._further
            if is_new and claim.token_id is not None and claim.token_id >= self.tokenizer.num_ids:
                self._further[claim.text] = claim.token_id

    @cached_property
    def added_texts(self) -> frozenset[str]:
        """Everything that is found in text before the vocabulary's own rules apply."""
        listed = (token.content for token in self.tokenizer.added_tokens.values())
        known = (text for text in self._flagged if text in self.tokenizer.ids_by_piece)
        return frozenset([*listed, *known, *self._further, *self._user_defined()])

    def _user_defined(self) -> list[str]:
        """Gemma types its turn markers so: found in text like control pieces, and shown."""
        if not self.is_sentencepiece:
            return []
        return texts_of_kind(self.tokenizer.raw, self.tokenizer.file, USER_DEFINED)

    def id_of(self, text: str) -> int | None:
        """The id, or None."""
        found = self.tokenizer.ids_by_piece.get(text)
        return self._further.get(text) if found is None else found

    def text_of(self, token_id: int) -> str | None:
        """The string as stored, or None for an id without one."""
        if 0 <= token_id < len(self.tokenizer.pieces):
            return self.tokenizer.pieces[token_id]
        return self._further_text.get(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether a reader is meant never to see it."""
        return token_id in self.tokenizer.special_ids or self.text_of(token_id) in self._flagged

    def is_control(self, token_id: int) -> bool:
        """Special, or added under a name that looks like a marker: DeepSeek-V3 does not flag `<｜User｜>` special."""
        text = self.text_of(token_id)
        if text is None:
            return False
        return self.is_special(token_id) or (text in self.added_texts and CONTROL_LOOK.fullmatch(text) is not None)

    def shown(self, token_id: int) -> str:
        """What the id prints, in quotes."""
        text = self.text_of(token_id)
        if text is not None and self.tokenizer.kind == "byte-level" and text not in self.added_texts:
            data = letters_to_bytes(text)
            text = text if data is None else data.decode("utf-8", "backslashreplace")
        return "no token" if text is None else repr(text[:MAX_SHOWN])
