"""Where a tokenizer cuts a text before it looks anything up: normaliser and pre-tokenizer, without the vocabulary.

A merge never crosses a cut. A vocabulary that was trained with one set of cuts and runs with another gives other ids,
all of which decode well. So neither a round trip nor a reader sees it; only the cuts themselves show it.

In a GGUF file the cuts are a name, `tokenizer.ggml.pre`; data/tokenizer/gguf_pretokenizers.json says what it stands for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from degarble.errors import EvidenceUnjudged
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.library_pipeline import LibraryPipeline, LibraryRefused

METASPACE = "\u2581"
FALLBACK = "default"
"""What llama.cpp takes where `tokenizer.ggml.pre` is absent."""
WITH_CUTS = "gpt2"
"""The only `tokenizer.ggml.model` whose `tokenizer.ggml.pre` llama.cpp looks at."""


class GgufPreTokenizer(msgspec.Struct, frozen=True, kw_only=True):
    """What one value of `tokenizer.ggml.pre` stands for."""

    cuts: str
    """Name of the cuts: several names share them."""
    ignore_merges: bool
    regexes: tuple[str, ...] | None
    """Applied one after the other, each match being a cut of its own; None: not known here."""


class Cutter:
    """Cuts texts as one tokenizer does."""

    def __init__(
        self, normalizer: Mapping[str, Any] | None, pre_tokenizer: Mapping[str, Any] | None, file: str = ""
    ) -> None:
        """Stored parts, as in tokenizer.json. Raises EvidenceUnjudged if the library refuses them."""
        self._file = file
        self._normalizer = self._guarded(lambda: LibraryPipeline(normalizer=normalizer))
        self._pre_tokenizer = self._guarded(lambda: LibraryPipeline(pre_tokenizer=pre_tokenizer))

    def normalize(self, text: str) -> str:
        """The text that is cut."""
        return str(self._guarded(lambda: self._normalizer.normalize(text)))

    def cuts(self, text: str) -> list[str]:
        """The pre-tokens, spelled as the vocabulary's pieces are."""
        return self.cut(self.normalize(text))

    def cut(self, normalized: str) -> list[str]:
        """The pre-tokens of a text that is normalised already."""
        return list(self._guarded(lambda: self._pre_tokenizer.pre_tokens(normalized))) if normalized else []

    def _guarded(self, call: Any) -> Any:
        try:
            return call()
        except LibraryRefused as error:
            raise EvidenceUnjudged(f"{self._file}: normalizer, pre_tokenizer: {error}") from None


def cutter_of(tokenizer: Tokenizer) -> Cutter:
    """The cutter of a stored tokenizer. Raises EvidenceUnjudged where it is not known."""
    if tokenizer.file.endswith(".json"):
        parts = tokenizer.pipeline
        return Cutter(parts.get("normalizer"), parts.get("pre_tokenizer"), tokenizer.file)
    if tokenizer.file.endswith(".gguf"):
        return _gguf_cutter(tokenizer)
    raise EvidenceUnjudged(f"{tokenizer.file}: its library cuts and merges in one step")


def _gguf_cutter(tokenizer: Tokenizer) -> Cutter:
    model, name = tokenizer.pipeline.get("model"), tokenizer.pipeline.get("pre", FALLBACK)
    if model != WITH_CUTS:
        if tokenizer.kind != "byte-fallback":
            raise EvidenceUnjudged(f"{tokenizer.file}: tokenizer.ggml.model {model!r} cuts and merges in one step")
        prepend = bool(tokenizer.pipeline.get("add_space_prefix", model == "llama"))
        return Cutter(spaces_replaced(prepend=prepend), None, tokenizer.file)
    known = gguf_pretokenizers().get(name) if isinstance(name, str) else None
    if known is None or known.regexes is None:
        raise EvidenceUnjudged(f"{tokenizer.file}: the cuts of tokenizer.ggml.pre {name!r:.80} are not known")
    return Cutter(None, byte_level(known.regexes), tokenizer.file)


def spaces_replaced(*, prepend: bool) -> dict[str, Any]:
    """The normaliser of sentencepiece vocabularies."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
    first = [{"type": "Prepend", "prepend": METASPACE}] if prepend else []
    return {"type": "Sequence", "normalizers": [*first, replace]}


def byte_level(regexes: Sequence[str]) -> dict[str, Any]:
    """A pre-tokenizer that splits by each regex in turn and writes bytes as letters."""
    splits = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in regexes
    ]
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [*splits, letters]}


@cache
def gguf_pretokenizers() -> Mapping[str, GgufPreTokenizer]:
    """Every value of `tokenizer.ggml.pre` that llama.cpp knows."""
    table = json.loads((files("degarble.data") / "tokenizer" / "gguf_pretokenizers.json").read_text("utf-8"))
    regexes = {name: tuple(listed) for name, listed in table["regexes"].items()}
    return {
        name: GgufPreTokenizer(cuts=cuts, ignore_merges=name in table["ignore_merges"], regexes=regexes.get(cuts))
        for cuts, names in table["names"].items()
        for name in names
    }
