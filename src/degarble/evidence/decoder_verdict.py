"""Evidence about the stored decoder of a tokenizer.json: it is tried on tokens of its own vocabulary, and the step that
spoils the text is found by leaving steps out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.tokenizer.decoder_pipeline import METASPACE
from degarble.tokenizer.decoder_trial import Failure, Trial, first_failure, opening_spaces_dropped, trials
from degarble.tokenizer.library_pipeline import LibraryPipeline, LibraryRefused
from degarble.tokenizer.spelling import BYTE_SPACE, Spelling
from degarble.tokenizer.stages import Stage, sequence_of

NUM_LOOKED_AT = 1000
"""Pieces that trials are made of."""
MAX_BLAMED = 20
"""Steps that are tried one by one; a decoder in use has four in all."""
TRANSLATORS = ("ByteLevel", "ByteFallback", "Fuse", "Metaspace", "WordPiece", "BPEDecoder")
"""Steps that turn the spelling of a vocabulary into text."""


class DecoderVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What trying the decoder showed."""

    refused: str | None = None
    """Why the library does not accept it."""
    mismatch: Failure | None = None
    """The steps that translate the spelling do not know this one."""
    lossy: tuple[tuple[Stage, Failure], ...] = ()
    """Further steps that spoil the text, each by itself."""
    spaces_prepended: int = 0
    """Spaces that encoding writes in front of a text."""
    spaces_dropped: int = 0
    """Spaces that decoding takes away at the start of a text that has several."""

    @property
    def is_sound(self) -> bool:
        """Whether all trials passed."""
        return self.refused is None and self.mismatch is None and not self.lossy


@provides("decoder_verdict")
def decoder_verdict(stored_tokenizer: StoredTokenizer, spelling: Spelling) -> DecoderVerdict:
    """Raises EvidenceMissing for vocabularies whose spelling is not known: nothing can be expected of their decoder."""
    if spelling.space is None and not spelling.is_word_piece:
        raise EvidenceMissing(f"{stored_tokenizer.file}: the pieces show neither Ġ, U+2581 nor ## for words")
    if not stored_tokenizer.model.get("byte_fallback") and not _undoes_bytes(stored_tokenizer):
        spelling = replace(spelling, byte_tokens=frozenset())
    looked_at = random.Random(0).sample(stored_tokenizer.pieces, min(len(stored_tokenizer.pieces), NUM_LOOKED_AT))
    ordinary = [piece for piece in looked_at if piece and piece not in stored_tokenizer.added]
    listed = trials(spelling, ordinary)
    try:
        decoder = LibraryPipeline(decoder=stored_tokenizer.parts.get("decoder"))
        failure = first_failure(decoder.decode, listed)
        if failure is not None:
            return _blame(stored_tokenizer.stages("decoder"), failure, listed)
        dropped = opening_spaces_dropped(decoder.decode, spelling.space) if spelling.space else 0
    except LibraryRefused as error:
        return DecoderVerdict(refused=str(error))
    return DecoderVerdict(
        spaces_prepended=_prepended(stored_tokenizer, spelling.space) if spelling.space else 0, spaces_dropped=dropped
    )


def _undoes_bytes(stored: StoredTokenizer) -> bool:
    """mT5 has pieces `<0xHH>` that nothing writes and nothing reads: words like others."""
    return any(step.kind == "ByteFallback" for step in stored.stages("decoder"))


def _blame(chain: list[Stage], failure: Failure, listed: Sequence[Trial]) -> DecoderVerdict:
    """The translators alone, then each other step beside them."""
    mismatch = _failure_of([step for step in chain if _translates(step)], listed)
    if mismatch is not None:
        return DecoderVerdict(mismatch=mismatch)
    others = [step for step in chain if not _translates(step)][:MAX_BLAMED]
    found = [
        (step, spoilt)
        for step in others
        if (spoilt := _failure_of([other for other in chain if _translates(other) or other is step], listed))
    ]
    return DecoderVerdict(lossy=tuple(found or [(step, failure) for step in others[:1]]))


def _failure_of(chain: list[Stage], listed: Sequence[Trial]) -> Failure | None:
    return first_failure(LibraryPipeline(decoder=sequence_of("decoder", chain)).decode, listed)


def _translates(step: Stage) -> bool:
    """A replacement counts where it speaks of the letter for a space."""
    pattern = step.settings.get("pattern")
    written = pattern.get("String", pattern.get("Regex")) if isinstance(pattern, dict) else None
    return step.kind in TRANSLATORS or (step.kind == "Replace" and written in (METASPACE, BYTE_SPACE))


def _prepended(stored: StoredTokenizer, space: str) -> int:
    """Asked of the normaliser and pre-tokenizer; 0 where the library does not accept them."""
    try:
        encoder = LibraryPipeline(
            normalizer=stored.parts.get("normalizer"), pre_tokenizer=stored.parts.get("pre_tokenizer")
        )
        first = "".join(encoder.pre_tokens("x"))
    except LibraryRefused:
        return 0
    return len(first) - len(first.lstrip(space))
