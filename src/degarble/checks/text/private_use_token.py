"""TOK406: special tokens with characters that have no meaning, or that look like others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.look_alike import code_points, skeleton
from degarble.tokenizer.odd_characters import odd_pieces, oddity
from degarble.tokenizer.spelling import Spelling
from degarble.tokenizer.token_claims import TokenClaim

COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)
RESTORE_TEXT = Fix(id="restore-token-text", safe=True)

MARKER = re.compile(r"[<＜〈‹][^<>＜＞〈〉‹›\n{}]{1,80}[>＞〉›]|\[[^\[\]\n{}'\"]{1,40}\]")
"""What looks like a marker in a chat template."""
LETTER = re.compile(r"[^\W_]")


@check("TOK406", severity=Severity.WARNING)
def private_use_token(known_tokens: KnownTokens) -> Iterator[Finding]:
    """A special token has characters that mean nothing, or that only look like those of its family.

    ## What it looks for
    In the text of every added or special token: private-use and unassigned code points, noncharacters, control and
    invisible characters (tab and line breaks excepted), U+FFFD, text that was decoded twice (`<ï½œUserï½œ>`), words that
    mix Latin with Greek or Cyrillic letters. Then every text that tokenizer_config.json, special_tokens_map.json and
    added_tokens.json write, where the tokenizer has not this token but one that looks the same: `<|begin_of_sentence|>`
    for `<｜begin▁of▁sentence｜>`, U+007C for U+FF5C, `_` for U+2581. Where two files, chat templates among them, agree
    against the tokenizer, the tokenizer is named. Then two tokens of one tokenizer that look alike. Private-use
    characters in ordinary pieces are an info with their number.

    ## Why output turns to garbage
    A marker is one token only if every code point is right. With another one it is cut into ordinary pieces: the model
    never sees the turn begin, and the token that it writes to end one is not the token that is waited for.

    ## What you will see
    Markers in the answer, turns that do not end, a prompt that uses ten tokens more than it should; invisible
    characters in the output.

    ## How to tell it from its look-alikes
    Ordinary pieces may hold private-use characters: Gemma 3 has 310 such ids (255207 is U+E005), gpt-oss 8, Llama 3.1
    3, DeepSeek and Qwen none; text on the web has them, so they are no warning. Line breaks and tabs are added tokens of
    Gemma. A special token that is unknown and looks like none is TOK401, a marker that only a chat template writes
    otherwise TPL503. One whose bytes a decoder breaks is TOK407.

    ## How to confirm
    Print the token with `ascii()`; encode it, and count the ids: it has to be one.

    ## How to repair it
    Where the tokenizer has the look-alike, write its text into the other file: safe unattended, one answer is left. A
    token that is damaged in the tokenizer itself has to come from the original.

    ## References
    tinygrad/tinygrad#17659, mistralai/mistral-common#59
    """
    file = known_tokens.tokenizer.file
    for text in sorted(known_tokens.added_texts):
        found = oddity(text)
        if found is not None:
            place = _place(known_tokens, text)
            yield Finding(
                location=place,
                message=f"{file}: token {text!a} (id {place.token_id}) has {found.what}"
                + (f"; it was probably {found.likely!r}" if found.likely else ""),
                measured={"code_points": found.code_points},
                bound={"code_points": "assigned, visible characters of one script"},
                fix=COPY_FROM_ORIGINAL,
                fold=found.kind,
            )


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """A text that a file gives for a token."""

    file: str
    key: str | None
    text: str


@check("TOK406", severity=Severity.WARNING, symptom_of=("TOK413",))
def look_alike_texts(
    known_tokens: KnownTokens,
    spelling: Spelling,
    token_claims: Sequence[TokenClaim],
    chat_templates: Sequence[ChatTemplate] | None = None,
) -> Iterator[Finding]:
    """Two spellings of one marker in the files of one checkpoint."""
    index = _by_skeleton(known_tokens.added_texts)
    yield from _twins(known_tokens, index)
    claimed = list(_claimed(token_claims))
    users: dict[str, set[str]] = {}
    for entry in (*claimed, *_templated(chat_templates or ())):
        users.setdefault(entry.text, set()).add(entry.file)
    for entry in claimed:
        if not entry.text or entry.text in spelling.pieces or entry.text in known_tokens.added_texts:
            continue
        texts = index.get(skeleton(entry.text), [])
        if texts:
            is_own = len(users[entry.text]) > 1 and not any(text in users for text in texts)
            yield _look_alike(known_tokens, entry, texts[0], tokenizer_is_wrong=is_own)


def _by_skeleton(texts: Iterable[str]) -> dict[str, list[str]]:
    index: dict[str, list[str]] = {}
    for text in sorted(texts):
        shape = skeleton(text)
        if LETTER.search(shape):
            index.setdefault(shape, []).append(text)
    return index


def _claimed(claims: Iterable[TokenClaim]) -> Iterator[_Written]:
    for claim in claims:
        if claim.text is not None:
            yield _Written(file=claim.file, key=claim.key, text=claim.text)


def _templated(templates: Iterable[ChatTemplate]) -> Iterator[_Written]:
    for template in templates:
        for text in dict.fromkeys(MARKER.findall(template.text)):
            yield _Written(file=template.file, key=template.key, text=text)


def _twins(known: KnownTokens, index: Mapping[str, list[str]]) -> Iterator[Finding]:
    for texts in index.values():
        if len(texts) > 1:
            places = tuple(_place(known, text) for text in texts)
            names = " and ".join(f"{text!r} ({code_points(text)})" for text in texts[:3])
            yield Finding(
                location=places[0],
                places=places,
                message=f"{known.tokenizer.file}: {names} are two tokens that look alike",
                confidence=Confidence.LIKELY,
                measured={"tokens": len(texts)},
                bound={"tokens": 1},
                fix=COPY_FROM_ORIGINAL,
                fold="twins",
            )


def _look_alike(known: KnownTokens, entry: _Written, text: str, *, tokenizer_is_wrong: bool) -> Finding:
    """Point at the file that stands alone; at the one that is not the tokenizer where it is one against one."""
    other = Location(file=entry.file, key=entry.key, token=entry.text)
    own = _place(known, text)
    where = entry.file if entry.key is None else f"{entry.file}: {entry.key}"
    return Finding(
        location=own if tokenizer_is_wrong else other,
        places=(own, other) if tokenizer_is_wrong else (other, own),
        message=f"{where} writes {entry.text!r} ({code_points(entry.text)}); {own.file} has {text!r} "
        f"({code_points(text)}, id {own.token_id}), which looks alike and is another token"
        + ("; two files agree against the tokenizer" if tokenizer_is_wrong else ""),
        measured={"written": ascii(entry.text)},
        bound={"written": ascii(text)},
        fix=COPY_FROM_ORIGINAL if tokenizer_is_wrong else RESTORE_TEXT,
        fold=f"look-alike {tokenizer_is_wrong}",
    )


def _place(known: KnownTokens, text: str) -> Location:
    file = known.tokenizer.file
    key = "pieces" if known.is_sentencepiece else "tokenizer.ggml.tokens" if known.is_gguf else "added_tokens"
    return Location(file=file, key=key, token=text, token_id=known.id_of(text))


@check("TOK406", severity=Severity.WARNING)
def private_use_piece(tokenizer: Tokenizer, known_tokens: KnownTokens, spelling: Spelling) -> Iterator[Finding]:
    """Ordinary vocabulary: legal, and worth knowing when such a character turns up in an answer."""
    found = [piece for piece in odd_pieces(spelling) if piece not in known_tokens.added_texts]
    if found:
        at = next(at for at, piece in enumerate(tokenizer.pieces) if piece == found[0])
        data = letters_to_bytes(found[0]) if spelling.is_byte_level else None
        text = found[0] if data is None else data.decode("utf-8", "replace")
        yield Finding(
            location=Location(file=tokenizer.file, token=found[0], token_id=at),
            message=f"{tokenizer.file}: {len(found)} ordinary pieces hold private-use characters or noncharacters, such "
            f"as {text!a} (id {at}): they are text that the model may write",
            severity=Severity.INFO,
            measured={"pieces": len(found)},
        )
