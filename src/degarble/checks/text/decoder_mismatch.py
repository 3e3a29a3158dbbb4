"""TOK407: the decoder does not undo how the vocabulary and the encoder write text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.checkpoint.gguf import GgufFile
from degarble.errors import EvidenceUnjudged
from degarble.evidence.decoder_verdict import DecoderVerdict
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.byte_alphabet import bytes_to_letters, letters_to_bytes
from degarble.tokenizer.gguf_vocabulary import BYTE, CONTROL, UNUSED
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.library_pipeline import LibraryPipeline, LibraryRefused
from degarble.tokenizer.spelling import BYTE_NAMES, Spelling
from degarble.tokenizer.unicode_bytes import NEVER_IN_UTF8
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

SET_DECODER = Fix(id="set-decoder", safe=True)
SET_TOKEN_TYPES = Fix(id="set-token-types", safe=True)
COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)

PROBE = "x y 客🌶"
"""A space, and characters of three and four bytes; no case and no accent that a normaliser may change."""
MAX_TOKENS_SHOWN = 4
_BYTE_NAMES = frozenset(BYTE_NAMES)


@check("TOK407")
def decoder_mismatch(
    stored_tokenizer: StoredTokenizer, spelling: Spelling, decoder_verdict: DecoderVerdict
) -> Iterator[Finding]:
    """The decoder does not undo the way in which the vocabulary or the encoder writes spaces and bytes.

    ## What it looks for
    The spelling is read off the pieces themselves: `Ġ` for a space is the byte alphabet of GPT-2, U+2581 is
    sentencepiece's, `<0xE4>` is a byte, `##` the inside of a word. Tokens in that spelling (spaces, characters cut into
    bytes, every printable letter, pieces drawn from the vocabulary) go through the stored decoder, and a probe text
    through the stored normaliser and pre-tokenizer, both run by the library itself. Also: a space that encoding puts in
    front of a text and decoding does not take away; added tokens written in letters of the byte alphabet, such as
    `<é>`, which a byte-level decoder reads as bytes. In GGUF: `tokenizer.ggml.model` against the spelling, and byte
    tokens whose type is not 6.

    ## Why output turns to garbage
    A vocabulary stores bytes and spaces under stand-ins. The decoder is the only place that knows them. With another
    decoder the ids are right, the model is right, and the reader sees the stand-ins.

    ## What you will see
    `Ġ` and `Ċ` between words, `ẫ` runs instead of Chinese, U+2581 for spaces, `<0x0A>` for line breaks, spaces between
    all tokens, one space in front of every answer, U+FFFD in place of an added token.

    ## How to tell it from its look-alikes
    A stream that decodes token by token shows U+FFFD inside characters, never `Ġ`; that is TOK414 or the engine. A
    decoder that translates well and also trims is TOK414. A class in `tokenizer_config.json` that replaces a sound
    decoder is TOK418. U+2581 inside `<｜begin▁of▁sentence｜>`, bytes that no piece yields (TOK409), a missing space at
    the start of a text, and vocabularies without any of these spellings are silent. DeepSeek's first generation has 13
    added letters (`ø`, `ú` …) that its text loses: a warning, since the model was trained so.

    ## How to confirm
    `Tokenizer.from_file("tokenizer.json")`, then `decode(encode("x y 客").ids)`.

    ## How to repair it
    Set the decoder that the spelling asks for: `ByteLevel`; or Replace U+2581 by a space, ByteFallback, Fuse, and Strip
    of one space where one is prepended. Safe unattended, as are the types of byte tokens in GGUF. A lost pre-tokenizer,
    a wrong `tokenizer.ggml.model` and an added token's text cannot be told from the file: copy them from the original.

    ## References
    meta-llama/llama3#133, ggml-org/llama.cpp#5064, ggml-org/llama.cpp#2743, vllm-project/vllm#43336
    """
    file = stored_tokenizer.file
    place = Location(file=file, key="decoder")
    failure = decoder_verdict.mismatch
    if decoder_verdict.refused is not None:
        yield Finding(
            location=place,
            message=f"{file}: decoder: the tokenizers library does not accept it: {decoder_verdict.refused}",
            confidence=Confidence.LIKELY,
            fix=SET_DECODER,
        )
    elif failure is not None:
        yield Finding(
            location=place,
            message=f"{file}: decoder ({_kinds(stored_tokenizer)}): the pieces are written in {spelling.name}; tokens "
            f"{_shown(failure.tokens)} should read {failure.expected[-40:]!r}, and come out as {failure.found[-40:]!r}",
            measured={"found": failure.found[:200]},
            bound={"expected": failure.expected[:200]},
            fix=SET_DECODER,
        )
    elif not spelling.is_byte_level and decoder_verdict.spaces_prepended > decoder_verdict.spaces_dropped:
        yield Finding(
            location=place,
            message=f"{file}: decoder: encoding writes {decoder_verdict.spaces_prepended} space in front of a text, "
            f"decoding takes {decoder_verdict.spaces_dropped} away: every text comes back with a space too many",
            measured={"dropped": decoder_verdict.spaces_dropped},
            bound={"prepended": decoder_verdict.spaces_prepended},
            fix=SET_DECODER,
        )


def _kinds(stored: StoredTokenizer) -> str:
    return ", ".join(step.kind for step in stored.stages("decoder"))[:200] or "none"


def _shown(tokens: Sequence[str]) -> str:
    shown = [token[:40] for token in tokens[-MAX_TOKENS_SHOWN:]]
    return f"{'… ' if len(tokens) > MAX_TOKENS_SHOWN else ''}{shown}"


@check("TOK407")
def spelling_not_encoded(stored_tokenizer: StoredTokenizer, spelling: Spelling) -> Iterator[Finding]:
    """Normaliser and pre-tokenizer have to write a text in the spelling of the pieces, or nothing is found in them."""
    if spelling.space is None:
        return
    file = stored_tokenizer.file
    try:
        parts = {name: stored_tokenizer.parts.get(name) for name in ("normalizer", "pre_tokenizer")}
        written = "".join(LibraryPipeline(**parts).pre_tokens(PROBE))
    except LibraryRefused as error:
        raise EvidenceUnjudged(f"{file}: normalizer, pre_tokenizer: {error}") from None
    expected = bytes_to_letters(PROBE.encode()) if spelling.is_byte_level else PROBE.replace(" ", spelling.space)
    if written.removeprefix(spelling.space) == expected:
        return
    yield Finding(
        location=Location(file=file, key="pre_tokenizer"),
        places=tuple(Location(file=file, key=key) for key in ("pre_tokenizer", "normalizer")),
        message=f"{file}: normalizer and pre_tokenizer write {PROBE!r} as {written[:80]!r}; the pieces are written in "
        f"{spelling.name}, where it is {expected!r}",
        measured={"found": written[:200]},
        bound={"expected": expected},
        fix=COPY_FROM_ORIGINAL,
    )


@check("TOK407")
def added_token_in_byte_letters(tokenizer: Tokenizer) -> Iterator[Finding]:
    """The library's byte-level decoder does not tell added tokens from pieces."""
    if tokenizer.kind != "byte-level" or not tokenizer.file.endswith(".json"):
        return
    for token in tokenizer.added_tokens.values():
        if token.content.isascii():
            continue
        data = letters_to_bytes(token.content)
        text = token.content if data is None else data.decode("utf-8", "replace")
        if data is not None and REPLACEMENT_CHAR in text and (len(data) > 1 or data[0] in NEVER_IN_UTF8):
            yield _lost_token(tokenizer, token, text, is_letter=len(data) == 1)


def _lost_token(tokenizer: Tokenizer, token: AddedToken, text: str, *, is_letter: bool) -> Finding:
    return Finding(
        location=Location(file=tokenizer.file, key="added_tokens", token=token.content, token_id=token.token_id),
        message=f"{tokenizer.file}: added_tokens: {token.content!r} (id {token.token_id}) is written in letters of the "
        f"byte alphabet, so the ByteLevel decoder turns it into {text!r}",
        severity=Severity.WARNING if is_letter else None,
        measured={"decoded": text},
        bound={"decoded": token.content},
        fix=COPY_FROM_ORIGINAL,
        fold="letters" if is_letter else "added",
    )


@check("TOK407")
def gguf_model_names_other_spelling(tokenizer: Tokenizer, spelling: Spelling, gguf: GgufFile) -> Iterator[Finding]:
    """llama.cpp chooses the decoder by `tokenizer.ggml.model`."""
    if spelling.space is None or (tokenizer.kind == "byte-level") == spelling.is_byte_level:
        return
    key, found = "tokenizer.ggml.model", str(gguf.text("tokenizer.ggml.model"))
    expected = "gpt2" if spelling.is_byte_level else "llama"
    yield Finding(
        location=Location(file=gguf.file, key=key),
        message=f"{gguf.file}: {key} is {found!r}, and the pieces are written in {spelling.name}, as {expected!r} does",
        measured={"found": found},
        bound={"expected": expected},
        fix=COPY_FROM_ORIGINAL,
    )


@check("TOK407")
def byte_tokens_typed_otherwise(
    tokenizer: Tokenizer, spelling: Spelling, gguf: GgufFile, token_types: Sequence[int]
) -> Iterator[Finding]:
    """A byte token of another type is printed as it is stored; a type of its own for another piece is read as a byte."""
    if tokenizer.kind != "byte-fallback" or not spelling.has_byte_fallback:
        return
    named = {at for at, piece in enumerate(tokenizer.pieces) if piece in _BYTE_NAMES}
    for at in sorted(named.union(at for at, found in enumerate(token_types) if found == BYTE)):
        piece, is_byte = tokenizer.pieces[at], at in named
        found = token_types[at] if token_types else None
        if is_byte == (found == BYTE) or found in (CONTROL, UNUSED):  # these two print nothing: TOK414
            continue
        yield Finding(
            location=Location(file=gguf.file, key="tokenizer.ggml.token_type", token=piece, token_id=at),
            message=f"{gguf.file}: tokenizer.ggml.token_type: id {at}, {piece!r}, is of type {found}; "
            + (f"a byte has type {BYTE}, so it is printed as it stands" if is_byte else "only <0xHH> is a byte"),
            measured={"type": found},
            bound={"type": BYTE if is_byte else 1},
            fix=SET_TOKEN_TYPES,
            fold=f"byte {is_byte}",
        )
