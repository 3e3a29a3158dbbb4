"""Markers in what a template writes: which must be one token, which are plain text by design, and which only look right.

Pipes inside angle brackets (`<|im_end|>`, `<｜User｜>`, Gemma 4's `<|turn>`) always name a token. Words in brackets may
(`[INST]` is a token of Mistral's later tokenizers and plain text in Llama 2) and so may XML tags (`<think>`): those
count as markers only where the tokenizer knows them, their counterpart or their look-alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import islice

import msgspec

from degarble.templates.folded_text import fold
from degarble.tokenizer.known_tokens import KnownTokens

MARKER = re.compile(
    r"""<\|[^|<>\n]{1,80}\|>      # <|im_start|>
    | <\|[\w"/-]{1,40}>           # <|turn>
    | </?[\w"/-]{1,40}\|>         # <turn|>
    | <\|[^|<>\n]{1,40}\|(?!>)    # <|im_start| without its end: judged only if that names a token
    | </?[\w:.-]{1,60}>           # <start_of_turn>, </s>, <think>
    | \[/?[A-Z][A-Z_]{1,40}\]     # [INST]""",
    re.VERBOSE,
)
ROLE_WORDS = frozenset(f"<|{role}|>" for role in ("system", "user", "assistant", "model", "tool", "observation"))
"""Zephyr, Tulu and OLMo write these as plain text on tokenizers that know none of them."""
TURN_TAGS = frozenset(
    ("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<s>", "</s>", "<start_of_image>", "<sop>")
)
"""Tags without pipes that are never plain text."""
TURN_WORDS = re.compile(r"turn|sentence|[:<]/?[be]os\b|role")
"""In names of tags that open and close turns."""
MAX_SEARCHES, MAX_CANDIDATES = 100, 300
MAX_MARKERS = 2000
"""Different ones that are judged; templates have some thirty."""


class Fault(StrEnum):
    """What is wrong with a marker."""

    UNKNOWN = "is no token"
    LOOK_ALIKE = "only looks like a token"
    SPLIT = "is in the vocabulary, but is not matched as a whole"
    WIDOWED = "is no token, while its counterpart is"
    JOINED = "is a token that must stand alone, and touches a word"


class BadMarker(msgspec.Struct, frozen=True, kw_only=True):
    """A marker as the template writes it."""

    text: str
    fault: Fault
    similar: str | None = None
    """The token it was taken for."""


class MarkerTable:
    """The texts that one tokenizer matches as a whole."""

    def __init__(self, known: KnownTokens) -> None:
        self._known = known
        self._tokenizer = known.tokenizer
        self._flags = {token.content: token for token in known.tokenizer.added_tokens.values()}
        self.tokens = known.added_texts
        """Added tokens, those that the files beside a sentencepiece model add to it among them."""
        self._verdicts: dict[str, BadMarker | None] = {}
        self._searches = 0

    def __contains__(self, text: str) -> bool:
        return text in self.tokens or (self._matches_pieces and text in self._pieces)

    def id_of(self, text: str) -> int | None:
        """The id of a token; the vocabulary is indexed only for texts that are not added tokens."""
        token = self._flags.get(text)
        return self._known.id_of(text) if token is None else token.token_id

    @cached_property
    def _matches_pieces(self) -> bool:
        """Whether a piece of the vocabulary with that text is found whole: so does Unigram, and BPE does not."""
        model = self._tokenizer.pipeline.get("model")
        return isinstance(model, dict) and model.get("type") == "Unigram"

    @cached_property
    def _pieces(self) -> frozenset[str | None]:
        return frozenset(self._tokenizer.pieces)

    @cached_property
    def _by_fold(self) -> Mapping[str, str]:
        return {_key(fold(text).text): text for text in sorted(self.tokens)}

    @cached_property
    def _knows_roles(self) -> bool:
        return any(role in self for role in ROLE_WORDS)

    def bad_markers(self, text: str) -> Iterator[BadMarker]:
        """Every marker of a text that will not become one id, each once."""
        told: set[str] = set()
        folded = fold(text)
        for match in MARKER.finditer(folded.text):
            marker = folded.slice(match.start(), match.end())
            if marker in self:
                found = self._judge_known(marker, folded.text[match.end() : match.end() + 1])
            else:
                found = self._judge_once(marker, match[0])
            if found is not None and marker not in told:
                told.add(marker)
                yield found

    def _judge_once(self, marker: str, folded: str) -> BadMarker | None:
        """The same markers come back in every text."""
        if marker not in self._verdicts and len(self._verdicts) < MAX_MARKERS:
            self._verdicts[marker] = self._judge(marker, folded)
        return self._verdicts.get(marker)

    def _judge_known(self, marker: str, after: str) -> BadMarker | None:
        token = self._flags.get(marker)
        is_joined = token is not None and token.single_word and after.isalnum()
        return BadMarker(text=marker, fault=Fault.JOINED) if is_joined else None

    def _judge(self, marker: str, folded: str) -> BadMarker | None:
        """A marker that is no token; `folded` is its plain spelling."""
        if folded.startswith("<|") and folded.endswith("|"):
            whole = self._by_fold.get(_key(folded + ">"))
            return BadMarker(text=marker, fault=Fault.LOOK_ALIKE, similar=whole) if whole else None
        is_sure = "<|" in folded or "|>" in folded or folded in TURN_TAGS
        similar = self._by_fold.get(_key(folded))
        if similar is not None and similar != marker and (is_sure or marker != folded or "turn" in similar):
            return BadMarker(text=marker, fault=Fault.LOOK_ALIKE, similar=similar)
        if not is_sure:
            return self._judge_tag(marker, folded)
        if marker in self._pieces:
            return BadMarker(text=marker, fault=Fault.SPLIT)
        if folded in ROLE_WORDS and not self._knows_roles:
            return None
        return BadMarker(text=marker, fault=Fault.UNKNOWN, similar=self._nearest(folded, self._by_fold))

    def _judge_tag(self, marker: str, folded: str) -> BadMarker | None:
        """A tag or word in brackets: meant as text, unless something of its kind is a token."""
        counterpart = _counterpart(marker)
        if counterpart in self.tokens:
            return BadMarker(text=marker, fault=Fault.WIDOWED, similar=counterpart)
        similar = self._nearest(folded, self._turn_keys)
        return BadMarker(text=marker, fault=Fault.UNKNOWN, similar=similar) if similar else None

    @cached_property
    def _turn_keys(self) -> list[str]:
        """Tags of turns; a vocabulary has a few."""
        return [key for key in self._by_fold if TURN_WORDS.search(key)][:MAX_CANDIDATES]

    def _nearest(self, folded: str, among: Iterable[str]) -> str | None:
        """The token with the most similar spelling, for typing errors. Costs a millisecond, so it is done some times only."""
        from difflib import get_close_matches

        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return None
        likely = (key for key in among if abs(len(key) - len(folded)) < 4 and key[:2] == folded[:2].casefold())
        close = get_close_matches(_key(folded), [*islice(likely, MAX_CANDIDATES)], n=1, cutoff=0.85)
        return self._by_fold[close[0]] if close else None


def _key(folded: str) -> str:
    """Spelling without case, spaces and kinds of hyphens."""
    return folded.casefold().replace(" ", "").replace("-", "_")


def _counterpart(marker: str) -> str:
    """`<x>` for `</x>`, `[/X]` for `[X]`, and back."""
    opening, rest = marker[:1], marker[1:]
    return opening + rest[1:] if rest.startswith("/") else f"{opening}/{rest}"
