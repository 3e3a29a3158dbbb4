"""TOK414: a stream of this tokenizer loses text, whatever the engine does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.checkpoint.gguf import GgufFile
from degarble.evidence.decoder_verdict import DecoderVerdict
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN
from degarble.tokenizer.gguf_vocabulary import UNUSED
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.plain_text import is_bracketed, is_plain_text
from degarble.tokenizer.sentencepiece_pieces import texts_of_kind
from degarble.tokenizer.spelling import Spelling
from degarble.tokenizer.stages import Stage
from degarble.tokenizer.stream_trial import sample_table, stream_differences
from degarble.tokenizer.unicode_bytes import IN_USE

DROP_STEP = Fix(id="drop-decoder-step", safe=True)
STRIP_ONE = Fix(id="strip-what-is-prepended", safe=True)
CLEAR_SPECIAL = Fix(id="clear-special-flag", safe=True)
SET_TOKEN_TYPES = Fix(id="set-token-types", safe=True)


@check("TOK414", symptom_of=("TOK407",))
def stream_decode_lossy(stored_tokenizer: StoredTokenizer, decoder_verdict: DecoderVerdict) -> Iterator[Finding]:
    """Decoding loses text, or changes text that a stream has already shown.

    ## What it looks for
    Tokens whose text is known from their spelling go through the stored decoder, whole and in every beginning that ends
    with a character. A step that trims each token, trims the end, or replaces and removes text across tokens fails: what
    it gives for a beginning is no beginning of what it gives for all. Steps are left out one by one to name the guilty
    one. Spaces dropped at the start of a text are held against those that encoding prepends. Tokens that carry bytes of
    text (`<0x0A>`, the letter of a line break) must not be special, nor of type 3 or 5 in GGUF, for then no stream shows
    them. Last, degarble's own stream decoder runs over seeded sequences of this vocabulary in every grouping, against
    the plain byte string.

    ## Why output turns to garbage
    A stream is a row of decoded beginnings. A decoder whose steps look at the whole text gives other beginnings for other
    lengths, so characters are dropped, doubled or sent and taken back; a token hidden as special takes its bytes along,
    and the rest of the character becomes U+FFFD.

    ## What you will see
    Words run together, indentation lost, ends of lines missing, doubled letters collapsed, answers that differ with
    streaming on and off; U+FFFD where a byte is hidden.

    ## How to tell it from its look-alikes
    Stand-ins such as `Ġ` or `<0x0A>` in the text are TOK407. One space taken away at the start where one was prepended
    is Llama 2's own form and silent; taken away where none was prepended is a warning, since it costs only a text that
    begins with a space. U+FFFD in a stream of a sound tokenizer comes from an engine that decodes tokens one by one:
    `degarble tokenizer verify` shows it. The library's own treatment of broken byte runs is no fault of a file.

    ## How to confirm
    Decode the named tokens with the library, all at once and after each token.

    ## How to repair it
    Drop the step, strip exactly what is prepended, clear the special flag: each safe unattended, since the vocabulary
    and the encoder leave one answer.

    ## References
    huggingface/tokenizers#1141, huggingface/transformers#28776, vllm-project/vllm#17448, NVIDIA/TensorRT-LLM#14312
    """
    for step, failure in decoder_verdict.lossy:
        yield Finding(
            location=Location(file=stored_tokenizer.file, key=step.key),
            message=f"{stored_tokenizer.file}: {step.key} ({_named(step)}) spoils the text: tokens "
            f"{[token[:40] for token in failure.tokens[-4:]]} should end in {failure.expected[-40:]!r}, and come out as "
            f"{failure.found[-40:]!r}",
            measured={"found": failure.found[:200]},
            bound={"expected": failure.expected[:200]},
            fix=DROP_STEP,
        )
    lost = decoder_verdict.spaces_dropped - decoder_verdict.spaces_prepended
    if decoder_verdict.is_sound and lost > 0:
        yield _opening(stored_tokenizer, decoder_verdict, lost)


def _named(step: Stage) -> str:
    details = {key: value for key, value in step.settings.items() if key != "type"}
    return f"{step.kind} {str(details)[:120]}" if details else step.kind


def _opening(stored: StoredTokenizer, verdict: DecoderVerdict, lost: int) -> Finding:
    steps = [step for step in stored.stages("decoder") if step.kind in ("Strip", "Metaspace")]
    key = steps[-1].key if steps else "decoder"
    return Finding(
        location=Location(file=stored.file, key=key),
        message=f"{stored.file}: {key}: {verdict.spaces_dropped} of several leading spaces are dropped, and encoding "
        f"prepends {verdict.spaces_prepended}: a text that begins with spaces loses {lost}",
        severity=Severity.WARNING if verdict.spaces_dropped == 1 else None,
        measured={"dropped": verdict.spaces_dropped},
        bound={"prepended": verdict.spaces_prepended},
        fix=STRIP_ONE,
    )


@check("TOK414", symptom_of=("TOK407",))
def text_token_special(tokenizer: Tokenizer, spelling: Spelling) -> Iterator[Finding]:
    """A token that is a byte of text is hidden with the special ones."""
    for token in tokenizer.added_tokens.values():
        byte = _text_byte(spelling, token.content) if token.special else None
        if byte is not None:
            key = "tokenizer.ggml.token_type" if tokenizer.file.endswith(".gguf") else "added_tokens"
            place = Location(file=tokenizer.file, key=key, token=token.content, token_id=token.token_id)
            yield Finding(
                location=place,
                message=f"{tokenizer.file}: {key}: {token.content!r} (id {token.token_id}) writes byte {byte:02X} and is "
                f"flagged special: a stream that hides special tokens loses it",
                measured={"special": True},
                bound={"special": False},
                fix=CLEAR_SPECIAL,
                fold="text byte special",
            )


def _text_byte(spelling: Spelling, content: str) -> int | None:
    """The byte in use that a token of this vocabulary writes, if it writes just one."""
    if spelling.is_byte_level:
        data = letters_to_bytes(content) if len(content) == 1 else None
        value = None if data is None else data[0]
    else:
        found = BYTE_TOKEN.match(content) if spelling.has_byte_fallback else None
        value = None if found is None else int(found[1], 16)
    return value if value in IN_USE else None


@check("TOK414", symptom_of=("TOK407",))
def text_token_unused(
    tokenizer: Tokenizer, gguf: GgufFile, spelling: Spelling, token_types: Sequence[int]
) -> Iterator[Finding]:
    """llama.cpp prints nothing for a token of type 5; only padding and reserved places, in brackets, may have it."""
    key = "tokenizer.ggml.token_type"
    for at, kind in enumerate(token_types):
        piece = tokenizer.pieces[at] if kind == UNUSED else None
        if piece and (_text_byte(spelling, piece) is not None or not is_bracketed(piece)):
            place = Location(file=gguf.file, key=key, token=piece, token_id=at)
            yield _never_shown(place, f"{piece!r} (id {at}) is of type {UNUSED} (unused)")


@check("TOK414", symptom_of=("TOK407",))
def text_piece_not_normal(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Sentencepiece neither finds nor shows a control piece, and shows nothing for an unused one."""
    if tokenizer.file.endswith((".json", ".gguf")):
        return
    control = [token.content for token in tokenizer.added_tokens.values() if token.special]
    unused = texts_of_kind(tokenizer.raw, tokenizer.file, UNUSED)
    for kind, texts in (("control", control), ("unused", unused)):
        for text in texts:
            if is_plain_text(text):
                at = tokenizer.ids_by_piece.get(text)
                place = Location(file=tokenizer.file, key="pieces", token=text, token_id=at)
                yield _never_shown(place, f"{text!r} (id {at}) is typed {kind}")


def _never_shown(place: Location, what: str) -> Finding:
    return Finding(
        location=place,
        message=f"{place.file}: {place.key}: {what}, and is text: nothing is printed for it",
        confidence=Confidence.LIKELY,
        measured={"shown": False},
        bound={"shown": True},
        fix=SET_TOKEN_TYPES,
        fold="never shown",
    )


@check("TOK414", confidence=Confidence.PROVEN)
def own_stream_differs(tokenizer: Tokenizer, gguf: GgufFile | None = None) -> Iterator[Finding]:
    """The proof that an exact stream of this tokenizer exists: ours, against the bytes themselves."""
    table = sample_table(tokenizer, gguf.metadata if gguf is not None else None)
    for difference in stream_differences(table):
        yield Finding(
            location=Location(file=tokenizer.file),
            message=f"{tokenizer.file}: the stream decoder gives {difference.found[:60]!r} for a sequence of "
            f"{len(difference.token_ids)} tokens, and their bytes are {difference.expected[:60]!r}",
            measured={"found": difference.found[:200]},
            bound={"expected": difference.expected[:200]},
            fold="own stream",
        )
