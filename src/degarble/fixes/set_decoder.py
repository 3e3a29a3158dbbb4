"""The decoder of tokenizer.json, which has to undo how the pieces are written."""

from __future__ import annotations

from typing import Any

from degarble.evidence.decoder_verdict import DecoderVerdict
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.tokenizer.spelling import WORD_PREFIX, Spelling


@repair("set-decoder")
def set_decoder(job: Job) -> None:
    """Write the decoder that the spelling of the pieces asks for.

    ## What it changes
    `decoder` of tokenizer.json.

    ## Why there is one answer
    Pieces in letters of the byte alphabet are read back by `ByteLevel` alone; U+2581 is a space, `<0xHH>` a byte, and
    what encoding writes in front of a text comes off again.

    ## What it cannot do
    Mend pieces, normaliser or pre-tokenizer: if they do not fit, the file has to be fetched.
    """
    stored: StoredTokenizer = job.need("stored_tokenizer")
    spelling: Spelling = job.need("spelling")
    verdict: DecoderVerdict = job.need("decoder_verdict")
    job.set_key(stored.file, "decoder", decoder_for(spelling, _prepended(stored, verdict)), "what the pieces ask for")


def decoder_for(spelling: Spelling, prepended: int) -> dict[str, Any]:
    """The library's decoder for a spelling. Raises CannotRepair where the pieces show none."""
    if spelling.is_byte_level:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if spelling.is_word_piece:
        return {"type": "WordPiece", "prefix": WORD_PREFIX, "cleanup": False}
    if spelling.space is None:
        raise CannotRepair("the pieces do not show how they are written")
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": spelling.space}, "content": " "}]
    if spelling.has_byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if prepended:
        steps.append({"type": "Strip", "content": " ", "start": prepended, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _prepended(stored: StoredTokenizer, verdict: DecoderVerdict) -> int:
    """Spaces that encoding writes in front; a verdict of a decoder that does not translate has not looked."""
    if verdict.mismatch is None and verdict.refused is None:
        return verdict.spaces_prepended
    return _prepended_by(stored)


def _prepended_by(stored: StoredTokenizer) -> int:
    """As normaliser and pre-tokenizer say."""
    text = str(stored.parts.get("normalizer")) + str(stored.parts.get("pre_tokenizer"))
    return int("Prepend'" in text or "'prepend_scheme': 'first'" in text or "'prepend_scheme': 'always'" in text)


@repair("strip-what-is-prepended")
def strip_what_is_prepended(job: Job) -> None:
    """Take as many spaces away at the start of a text as encoding puts there.

    ## What it changes
    The step of the decoder that takes them away: its number, or the step goes if encoding prepends nothing.

    ## Why there is one answer
    The rest of the decoder is sound, and the number that encoding prepends is seen by encoding.

    ## What it cannot do
    Give back spaces of texts that were already decoded.
    """
    stored: StoredTokenizer = job.need("stored_tokenizer")
    verdict: DecoderVerdict = job.need("decoder_verdict")
    steps = [step for step in stored.stages("decoder") if step.kind in ("Strip", "Metaspace")]
    if not steps:
        raise CannotRepair("no step of the decoder takes spaces away by a number")
    key, kind = steps[-1].key, steps[-1].kind
    if kind == "Metaspace":
        scheme = "first" if verdict.spaces_prepended else "never"
        job.set_key(stored.file, f"{key}.prepend_scheme", scheme, "as encoding does")
    elif verdict.spaces_prepended:
        job.set_key(stored.file, f"{key}.start", verdict.spaces_prepended, "as many as encoding prepends")
    else:
        job.drop_key(stored.file, key, "encoding prepends nothing")


@repair("drop-decoder-step")
def drop_decoder_step(job: Job) -> None:
    """Take a step out of the decoder that turns right text into wrong text.

    ## What it changes
    One entry of the list of steps in tokenizer.json. Where encoding puts a space in front of a text and the step is the
    one that takes it away again, in the wrong place, the decoder becomes the one that the pieces ask for.

    ## Why there is one answer
    Without the step, tokens come out as the text they were made from; with it they do not.

    ## What it cannot do
    Replace a decoder that consists of this step alone.
    """
    for place in job.places:
        parent, _, number = (place.key or "").rpartition(".")
        steps = job.value(place.file or "", parent) if parent else None
        if not isinstance(steps, list) or not number.isdecimal() or int(number) >= len(steps):
            raise CannotRepair(f"{place.key} is no step of a list")
        if isinstance(steps[int(number)], dict) and steps[int(number)].get("type") == "Strip" and _is_needed(job):
            stored: StoredTokenizer = job.need("stored_tokenizer")
            job.set_key(stored.file, "decoder", decoder_for(job.need("spelling"), 1), "what the pieces ask for")
            return
        kept = [step for at, step in enumerate(steps) if at != int(number)]
        job.set_key(place.file or "", parent, kept, "without the step that spoils text")


def _is_needed(job: Job) -> bool:
    return _prepended_by(job.need("stored_tokenizer")) > 0
