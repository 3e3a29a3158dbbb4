"""A stored BPE tokenizer as an encoder of short texts: added tokens, cuts, merges. Loads in a tenth of the library's time.

    text -> added tokens taken out -> normaliser -> pre-tokenizer -> merges -> ids
Template tokens (BOS, EOS) are not written. The result is the library's on every published file at hand (see
`tests/tokenizer/test_bpe_encoder.py`); llama.cpp differs in details around added tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.tokenizer.bpe import Bpe
from degarble.tokenizer.cuts import Cutter, cutter_of, gguf_pretokenizers
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.merges import Rank
from degarble.tokenizer.special_texts import finder_of

Segment = str | int
"""Text that is still to be encoded, or the id of an added token."""


def bpe_of(tokenizer: Tokenizer, rank: Rank | None = None) -> Bpe:
    """Pieces and merges of a stored tokenizer; `rank` replaces its merges.

    Raises EvidenceMissing for vocabularies of another kind, EvidenceUnjudged for forms that are not implemented.
    """
    model = _model(tokenizer, needs_merges=rank is None)
    if any(model.get(key) for key in ("continuing_subword_prefix", "end_of_word_suffix")):
        raise EvidenceUnjudged(f"{tokenizer.file}: pieces with a prefix or suffix of their own are not encoded here")
    if rank is None and tokenizer.merges.problem is not None:
        raise EvidenceUnjudged(f"{tokenizer.file}: merges: {tokenizer.merges.problem}")
    unknown = model.get("unk_token")
    return Bpe(
        ids=tokenizer.ids_by_piece,
        rank=tokenizer.merges.rank if rank is None else rank,
        ignore_merges=model.get("ignore_merges") is True,
        byte_fallback=model.get("byte_fallback") is True,
        unknown=tokenizer.ids_by_piece.get(unknown) if isinstance(unknown, str) else None,
        fuse_unknown=model.get("fuse_unk") is True,
    )


def _model(tokenizer: Tokenizer, *, needs_merges: bool) -> Mapping[str, object]:
    """Settings of the model, spelled as in tokenizer.json."""
    if tokenizer.file.endswith(".json"):
        model: Mapping[str, object] = tokenizer.pipeline["model"]
        if model.get("type") not in ("BPE", None):
            raise EvidenceMissing(f"{tokenizer.file}: model {model.get('type')!r} has no merges")
        return model
    if not tokenizer.file.endswith(".gguf") or (needs_merges and not tokenizer.merges.stored):
        raise EvidenceMissing(f"{tokenizer.file}: its vocabulary has no merges")
    name = tokenizer.pipeline.get("pre")
    known = gguf_pretokenizers().get(name) if isinstance(name, str) else None
    ignore_merges = known is not None and known.ignore_merges
    return {"ignore_merges": ignore_merges, "byte_fallback": tokenizer.kind == "byte-fallback"}


class BpeEncoder:
    """Texts to ids."""

    def __init__(self, tokenizer: Tokenizer, cutter: Cutter | None = None, rank: Rank | None = None) -> None:
        """`cutter` and `rank` replace the stored ones. Raises as `bpe_of` and `cutter_of` do."""
        self.bpe = bpe_of(tokenizer, rank)
        self.cutter = cutter_of(tokenizer) if cutter is None else cutter
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return [at for part in self._taken_out(text) for at in ([part] if isinstance(part, int) else self._plain(part))]

    def encode_cuts(self, cuts: list[str]) -> list[int]:
        """Ids of a text that is cut already."""
        return [at for cut in cuts for at in self.bpe.encode(cut)]

    def _plain(self, normalized: str) -> list[int]:
        return self.encode_cuts(self.cutter.cut(normalized))

    def _taken_out(self, text: str) -> Iterator[Segment]:
        """Two rounds: tokens that are looked for in the text as it came, then others in what the normaliser makes of
        the rest, part by part.
        """
        raw, normal = self._finders
        for part in raw.split(text):
            if isinstance(part, int):
                yield part
            else:
                yield from normal.split(self.cutter.normalize(part))

    @cached_property
    def _finders(self) -> tuple[_AddedFinder, _AddedFinder]:
        tokens = [token for token in self._tokenizer.added_tokens.values() if token.content]
        return (
            _AddedFinder({token.content: token for token in tokens if not token.normalized}),
            _AddedFinder({self.cutter.normalize(token.content): token for token in tokens if token.normalized}),
        )


class _AddedFinder:
    """Added tokens of one round."""

    def __init__(self, tokens: Mapping[str, AddedToken]) -> None:
        self.tokens = {text: token for text, token in tokens.items() if text}
        self._finder = finder_of(tuple(self.tokens))

    def split(self, text: str) -> Iterator[Segment]:
        """The leftmost, longest match each time; a token may take the white space beside it along."""
        done = 0
        for start, end in self._finder.find_all(text):
            token = self.tokens[text[start:end]]
            if start < done or (token.single_word and not _stands_alone(text, start, end)):
                continue
            if token.lstrip:
                start = done + len(text[done:start].rstrip())
            if token.rstrip:
                end = len(text) - len(text[end:].lstrip())
            if start > done:
                yield text[done:start]
            yield token.token_id
            done = end
        if done < len(text):
            yield text[done:]


def _stands_alone(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    return not any(char.isalnum() or char == "_" for char in (before, after) if char)
