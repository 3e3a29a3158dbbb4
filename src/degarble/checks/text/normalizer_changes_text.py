"""TOK416: what the normaliser does to a text before the vocabulary sees it."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping

from degarble.checkpoint.gguf import GgufFile
from degarble.errors import EvidenceUnjudged
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.byte_alphabet import bytes_to_letters
from degarble.tokenizer.decoder_pipeline import METASPACE
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.library_pipeline import LibraryPipeline, LibraryRefused
from degarble.tokenizer.spelling import BYTE_NAMES, Spelling

COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)

Normalize = Callable[[str], str]

PROBES: Mapping[str, str] = {
    "a combining accent": "e\u0301",
    "an accented letter": "é",
    "Hangul in parts": "\u1112\u1161\u11ab",
    "the angstrom sign": "\u212b",
    "a ligature": "ﬁ",
    "a circled digit": "①",
    "a superscript": "²",
    "a full-width letter": "Ａ",
    "a full-width comma": "，",
    "half-width katakana": "ｶﾞ",
    "a dotted capital": "İ",
    "typographic quotes": "“”",
    "an ellipsis": "…",
    "a no-break space": "\u00a0",
    "a zero-width joiner": "\u200d",
    "a line separator": "\u2028",
    "a Windows line break": "\r\n",
    "a control character": "\u0007",
    "U+2581": METASPACE,
}
PLAIN: Mapping[str, str] = {
    "two spaces": "  ",
    "a line break": "\n",
    "a tab": "\t",
    **{repr(char): char for char in string.digits + string.ascii_letters + string.punctuation},
}
"""Text that no normaliser may touch if the vocabulary has a piece for it: the piece could never be reached."""
WRAP = "0"
"""Stands on both sides of a probe, so that what a normaliser trims at the ends of a text does not count."""
MAX_SHOWN = 6


@check("TOK416", severity=Severity.INFO)
def normalizer_changes_text(stored_tokenizer: StoredTokenizer, spelling: Spelling) -> Iterator[Finding]:
    """The normaliser alters some inputs, so that the model reads another text than the user wrote.

    ## What it looks for
    The stored normaliser alone, run on probes: accents composed and decomposed, compatibility characters, full-width
    and half-width forms, spaces, line breaks, controls, every printable ASCII character. Spaces written as U+2581 and
    one space put in front are the vocabulary's spelling and do not count. Listed as an info. It is a warning where a
    printable ASCII character, a double space, a line break or a tab is altered *and* the vocabulary has a piece for it:
    then the piece can never be reached, and the normaliser is not the one that the vocabulary was made with.

    ## Why output turns to garbage
    A model trained on cased text with line breaks gets lower case in one line. It answers, worse; code and names lose
    their form. Composition (NFC) is harmless to reading, but text does not come back exactly as it was sent.

    ## What you will see
    Nothing with NFC. With a foreign normaliser: case, indentation or line breaks ignored, and a prompt that uses more
    tokens, or fewer, than elsewhere.

    ## How to tell it from its look-alikes
    Qwen's NFC, T5's NFKC, the lower case of an uncased vocabulary and Gemma's U+2581 are the families' own and stay
    infos. Added tokens are cut out before the normaliser works, such as Gemma's line breaks, and do not count. Text
    changed after decoding is TOK415; a pre-tokenizer that cuts otherwise keeps the text and is TOK419.

    ## How to confirm
    `Tokenizer.from_file("tokenizer.json").normalizer.normalize_str(text)` with the probe that is named.

    ## How to repair it
    An info needs none. A foreign normaliser is replaced by the original's, which no file here tells: not unattended.

    ## References
    ggml-org/llama.cpp#6980, ggml-org/llama.cpp#7122, huggingface/tokenizers#1201, sillsdev/silnlp#841
    """
    stored = stored_tokenizer.parts.get("normalizer")
    try:
        library = LibraryPipeline(normalizer=stored)
        altered = _altered(library.normalize, spelling)
    except LibraryRefused as error:
        raise EvidenceUnjudged(f"{stored_tokenizer.file}: normalizer: {error}") from None
    altered = {name: pair for name, pair in altered.items() if pair[0] not in stored_tokenizer.added}
    kinds = ", ".join(step.kind for step in stored_tokenizer.stages("normalizer"))[:200]
    place = Location(file=stored_tokenizer.file, key="normalizer")
    yield from _findings(place, f"normalizer ({kinds or 'none'})", altered, spelling)


@check("TOK416", severity=Severity.INFO)
def sentencepiece_normalizer(tokenizer: Tokenizer, spelling: Spelling) -> Iterator[Finding]:
    """The normaliser inside tokenizer.model, run by sentencepiece."""
    if tokenizer.file.endswith((".json", ".gguf")) or not tokenizer.raw:
        return
    from degarble.tokenizer.sentencepiece_model import open_sentencepiece

    model = open_sentencepiece(tokenizer.raw, tokenizer.file)
    if hasattr(model, "Normalize"):
        altered = _altered(lambda text: str(model.Normalize(text)), spelling)
        yield from _findings(Location(file=tokenizer.file, key="normalizer_spec"), "normalizer_spec", altered, spelling)


@check("TOK416", severity=Severity.INFO)
def gguf_normalizer(gguf: GgufFile) -> Iterator[Finding]:
    """llama.cpp has two switches for it, both for Unigram vocabularies."""
    for name, effect in (
        ("precompiled_charsmap", "characters are mapped before encoding, as T5 does (NFKC and more)"),
        ("remove_extra_whitespaces", "runs of spaces become one"),
    ):
        key = f"tokenizer.ggml.{name}"
        value = gguf.metadata.get(key)
        if value is not None and value is not False:
            yield Finding(
                location=Location(file=gguf.file, key=key),
                message=f"{gguf.file}: {key} is set: {effect}",
                measured={"set": True},
            )


def _altered(normalize: Normalize, spelling: Spelling) -> dict[str, tuple[str, str]]:
    """Name of a probe -> what went in and what came out; U+2581 is read as the space it stands for."""
    found: dict[str, tuple[str, str]] = {}
    for name, text in {**PLAIN, **PROBES}.items():
        written = normalize(f"{WRAP}{text}{WRAP}")
        if spelling.space == METASPACE:
            written = written.replace(METASPACE, " ").removeprefix(" ")
        out = written.removeprefix(WRAP).removesuffix(WRAP)
        if out != text:
            found[name] = (text, out)
    return found


def _findings(
    place: Location, what: str, altered: Mapping[str, tuple[str, str]], spelling: Spelling
) -> Iterator[Finding]:
    if not altered:
        return
    unreachable = [name for name, (text, _) in altered.items() if name in PLAIN and _has_piece(spelling, text)]
    shown = (unreachable or list(altered))[:MAX_SHOWN]
    examples = "; ".join(f"{name} {altered[name][0]!r} becomes {altered[name][1][:20]!r}" for name in shown)
    more = len(unreachable or altered) - len(shown)
    yield Finding(
        location=place,
        message=f"{place.file}: {what} alters {len(altered)} of {len(PLAIN) + len(PROBES)} probes: {examples}"
        + (f"; and {more} more" if more else "")
        + ("; the vocabulary has pieces for these, which can never be reached" if unreachable else ""),
        severity=Severity.WARNING if unreachable else None,
        measured={"altered": len(altered), "unreachable": len(unreachable), "probes": [*list(altered)[:20]]},
        bound={"unreachable": 0},
        fix=COPY_FROM_ORIGINAL if unreachable else None,
        fold="unreachable" if unreachable else "by design",
    )


def _has_piece(spelling: Spelling, text: str) -> bool:
    """Whether the vocabulary could write the text with one piece."""
    if spelling.is_byte_level:
        return bytes_to_letters(text.encode()) in spelling.pieces
    if spelling.has_byte_fallback and len(text) == 1 and BYTE_NAMES[ord(text)] in spelling.pieces:
        return True
    return (text if spelling.space is None else text.replace(" ", spelling.space)) in spelling.pieces
