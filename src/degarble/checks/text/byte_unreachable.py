"""TOK409: bytes of ordinary text that no token can write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.spelling import BYTE_NAMES, Spelling
from degarble.tokenizer.unicode_bytes import IN_USE, NEVER_IN_UTF8

COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)
SET_BYTE_FALLBACK = Fix(id="set-byte-fallback", safe=True)
MAX_SHOWN = 16


@check("TOK409", symptom_of=("TOK404", "TOK407"))
def byte_unreachable(
    tokenizer: Tokenizer, spelling: Spelling, stored_tokenizer: StoredTokenizer | None = None
) -> Iterator[Finding]:
    """Bytes that ordinary UTF-8 text is made of have no token, so such text cannot be read or written.

    ## What it looks for
    Every byte of well-formed UTF-8 in use needs a token of its own: its letter in a byte-level vocabulary, `<0xHH>` (or,
    below 0x80, the character itself) where bytes are the fallback. Also the switch `model.byte_fallback` of
    tokenizer.json, which has to be on where the decoder expects bytes.

    ## Why output turns to garbage
    A character whose bytes have no token is left out or becomes the unknown token when a prompt is encoded, silently.
    The model answers a question that nobody asked, and cannot write the character itself.

    ## What you will see
    Some characters, line breaks, emoji or a whole script are missing from what the model seems to have read; `<unk>` or
    ` ⁇ ` in answers; one language bad and the others good.

    ## How to tell it from its look-alikes
    Bytes C0, C1 and F5 to FF are in no UTF-8 text, F1 to F3 lead to planes without characters, and most control
    characters are in no text either: many published vocabularies lack them, which is an info. A vocabulary without any
    bytes (WordPiece, Unigram, words) turns unknown characters into the unknown token by design: an info as well. Bytes
    that are there and are printed as `<0xE4>` are TOK407, bytes that are there and are hidden TOK414.

    ## How to confirm
    Encode a text with the named byte (for E4: `你`) and look for the unknown token, or for a text that comes back short.

    ## How to repair it
    Switch `byte_fallback` on: safe unattended where all bytes are in the vocabulary. A piece that is missing has to come
    from the original tokenizer: not safe, since only that knows its id.

    ## References
    ollama/ollama#15232, ggml-org/llama.cpp#28862
    """
    if spelling.is_byte_level:
        missing = frozenset(range(256)) - spelling.byte_letters
        yield from _missing(tokenizer, missing, byte_letters())
    elif stored_tokenizer is not None and spelling.has_byte_fallback and not _falls_back(stored_tokenizer):
        yield _switched_off(stored_tokenizer)
    elif spelling.has_byte_fallback or _falls_back(stored_tokenizer) or _is_llama_gguf(tokenizer):
        own = {byte for byte in range(0x80) if chr(byte) in spelling.pieces}
        if spelling.space in spelling.pieces:
            own.add(ord(" "))
        yield from _missing(tokenizer, frozenset(range(256)) - spelling.byte_tokens - own, BYTE_NAMES)
    else:
        yield _no_bytes(tokenizer)


def _falls_back(stored: StoredTokenizer | None) -> bool:
    return stored is not None and stored.model.get("byte_fallback") is True


def _is_llama_gguf(tokenizer: Tokenizer) -> bool:
    """llama.cpp falls back to bytes for these vocabularies, whether the file has them or not."""
    return tokenizer.kind == "byte-fallback" and tokenizer.file.endswith(".gguf")


def _missing(tokenizer: Tokenizer, missing: frozenset[int], names: tuple[str, ...]) -> Iterator[Finding]:
    """In use: error. All others in one info."""
    place = Location(file=tokenizer.file, key=_vocabulary_key(tokenizer))
    for byte in sorted(missing & IN_USE):
        yield Finding(
            location=Location(file=place.file, key=place.key, token=names[byte]),
            message=f"{tokenizer.file}: no token writes byte {byte:02X}, which {_used_by(byte)}: "
            f"{names[byte]!r} is not in the vocabulary",
            measured={"byte": byte, "missing": len(missing & IN_USE)},
            bound={"missing": 0},
            fix=COPY_FROM_ORIGINAL,
            fold="in use",
        )
    rare = missing - IN_USE
    if rare:
        yield Finding(
            location=place,
            message=f"{tokenizer.file}: no token writes the bytes {_hex(rare)}; text in use has none of them",
            severity=Severity.INFO,
            measured={"missing": len(rare), "never_in_utf8": len(rare & NEVER_IN_UTF8)},
        )


def _used_by(byte: int) -> str:
    if byte < 0x80:
        return f"is {chr(byte)!r}"
    if byte < 0xC0:
        return "stands inside characters above U+007F"
    return f"begins {'two' if byte < 0xE0 else 'three' if byte < 0xF0 else 'four'}-byte characters"


def _hex(values: Iterable[int]) -> str:
    shown = sorted(values)
    more = f" and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
    return " ".join(f"{value:02X}" for value in shown[:MAX_SHOWN]) + more


def _vocabulary_key(tokenizer: Tokenizer) -> str:
    if tokenizer.file.endswith(".gguf"):
        return "tokenizer.ggml.tokens"
    return "model.vocab" if tokenizer.file.endswith(".json") else "pieces"


def _switched_off(stored: StoredTokenizer) -> Finding:
    """Read and written alike without bytes: the pieces are words that look alike, and all of it by design (mT5)."""
    reads = any(step.kind == "ByteFallback" for step in stored.stages("decoder"))
    return Finding(
        location=Location(file=stored.file, key="model.byte_fallback"),
        message=f"{stored.file}: model.byte_fallback is {stored.model.get('byte_fallback')!r}: the pieces <0xHH> are "
        f"never written, and characters outside the vocabulary become {stored.model.get('unk_token')!r}"
        + (", while the decoder reads them" if reads else ""),
        severity=None if reads else Severity.INFO,
        measured={"byte_fallback": False},
        bound={"byte_fallback": True},
        fix=SET_BYTE_FALLBACK if reads else None,
    )


def _no_bytes(tokenizer: Tokenizer) -> Finding:
    return Finding(
        location=Location(file=tokenizer.file, key=_vocabulary_key(tokenizer)),
        message=f"{tokenizer.file}: the vocabulary has no bytes: characters outside it become the unknown token",
        severity=Severity.INFO,
        measured={"pieces": tokenizer.num_ids},
    )
