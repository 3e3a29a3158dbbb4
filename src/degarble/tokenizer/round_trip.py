"""Texts there and back: what encoding and decoding lose beside what the normaliser says it changes.

The declared loss is taken out first: the text that has to come back is the normalised one, with U+2581 read as a space
where the vocabulary writes spaces so, and with or without the one space that a decoder or encoder sets at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.tokenizer.bpe_encoder import BpeEncoder
from degarble.tokenizer.corpora import corpus_names, make_corpus
from degarble.tokenizer.cuts import Cutter, byte_level, cutter_of
from degarble.tokenizer.decoder_pipeline import METASPACE
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.merges import Rank
from degarble.tokenizer.sentencepiece_model import open_sentencepiece

TEXTS_PER_CORPUS = 2
MORE_TEXTS = (
    "a  b   c",
    "  two spaces",
    "x\n\n\ny\t\tz \n",
    "\r\n",
    "0 1 22 333 4444",
    "a_b-c/d\\e",
    "«»“”„‚’…—–·•",
    "ﬁ½²Å",
)
MADE_OF_BYTES = ("byte-level", "byte-fallback")
"""Other kinds lose what they have no piece for, by design."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The first text that does not come back."""

    text: str
    expected: bytes
    found: bytes
    at: int
    """Byte at which they part."""
    num_lost: int
    num_texts: int


class Coder(msgspec.Struct, frozen=True, kw_only=True):
    """One tokenizer, both ways."""

    normalize: Callable[[str], str]
    encode: Callable[[str], list[int]]
    tokenizer: Tokenizer

    def lost(self, text: str) -> tuple[bytes, bytes] | None:
        """Bytes that had to come back and those that came; None if all is well."""
        wanted = self.normalize(text)
        if self.tokenizer.kind == "byte-fallback":
            wanted = wanted.replace(METASPACE, " ")
        expected = wanted.encode("utf-8", "surrogatepass")
        found = self.tokenizer.table.join(self.encode(text))
        if found in (expected, b" " + expected, expected.removeprefix(b" ")):
            return None
        return expected, found


def coder_of(tokenizer: Tokenizer) -> Coder:
    """Raises EvidenceMissing for a vocabulary that is not made of bytes, EvidenceUnjudged where there is no encoder."""
    if tokenizer.kind not in MADE_OF_BYTES:
        raise EvidenceMissing(
            f"{tokenizer.file}: what a {tokenizer.kind} vocabulary has no piece for is lost by design"
        )
    if tokenizer.file.endswith((".json", ".gguf")):
        encoder = BpeEncoder(tokenizer, cutter=_cutter(tokenizer), rank=rank_by_id(tokenizer))
        return Coder(normalize=encoder.cutter.normalize, encode=encoder.encode, tokenizer=tokenizer)
    model = open_sentencepiece(tokenizer.raw, tokenizer.file)
    if not hasattr(model, "normalize"):
        raise EvidenceUnjudged(f"{tokenizer.file}: this version of sentencepiece does not show what it normalises")
    return Coder(
        normalize=lambda text: str(model.normalize(text)),
        encode=lambda text: [int(at) for at in model.encode(text)],
        tokenizer=tokenizer,
    )


def _cutter(tokenizer: Tokenizer) -> Cutter:
    """The regexes behind a GGUF name cut and take nothing away, so here they do not matter, known or not."""
    if tokenizer.file.endswith(".gguf") and tokenizer.kind == "byte-level":
        return Cutter(None, byte_level([]), tokenizer.file)
    return cutter_of(tokenizer)


def rank_by_id(tokenizer: Tokenizer) -> Rank:
    """Two pieces merge if the vocabulary has what they spell, the lowest id first.

    Close to the stored order (see TOK410), and half a million merges need not be read: whichever are done, the bytes
    of the text are the same.
    """
    ids = tokenizer.ids_by_piece
    return lambda left, right: ids.get(left + right)


def probe_texts() -> Iterator[str]:
    """Some of each corpus, then spaces, line breaks and punctuation."""
    for name in corpus_names():
        yield from make_corpus(name, 0, TEXTS_PER_CORPUS)
    yield from MORE_TEXTS


def first_loss(coder: Coder) -> Loss | None:
    """Run all probes."""
    texts = list(probe_texts())
    lost = [(text, bytes_) for text in texts if (bytes_ := coder.lost(text)) is not None]
    if not lost:
        return None
    text, (expected, found) = lost[0]
    at = next(
        (n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    return Loss(text=text, expected=expected, found=found, at=at, num_lost=len(lost), num_texts=len(texts))
