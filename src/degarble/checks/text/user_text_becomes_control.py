"""TOK420: what a user types becomes a token that stands for something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.checkpoint.json_file import JsonFile
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.plain_text import is_plain_text

REMOVE_ADDED = Fix(id="remove-added-token", safe=False)
COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)
ALIGN_FLAGS = Fix(id="align-added-token-flags", safe=True)

CONFIG = "tokenizer_config.json"
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
MASKS = ("<mask>", "[MASK]", "<|mask|>")
"""Takes the space before it along, by design, in every masked model."""
MAX_GREEDY_SHARE = 0.25
"""Phi-4 gives both flags to all of its markers (dotnet/machinelearning#7337); a few out of many are a slip."""
MAX_SHOWN = 8


@check("TOK420", severity=Severity.WARNING)
def user_text_becomes_control(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Ordinary words, or markers that a safe encoding does not spare, turn into tokens of their own in a user's text.

    ## What it looks for
    Added tokens are found in a text before anything else, wherever they stand. A warning: an added token that is a plain
    word or a single printable character, special or not (`user`, `the`, `{`); a few tokens that swallow the spaces
    beside them (`lstrip`, `rstrip`) where their siblings do not (at most 25 %), or a marker that counts only between
    spaces (`single_word`); flags that tokenizer_config.json gives otherwise than tokenizer.json. An info: markers that
    are added and not special, which the library's `encode_special_tokens` does not spell out, and type 4 in GGUF, which
    llama.cpp finds even with `parse_special` off; swallowed spaces where most markers do it.

    ## Why output turns to garbage
    A word that is a token of its own is cut out of longer words (`username` becomes `user` and `name`), is a token the
    model hardly saw in training, and, where it is special, vanishes from answers. A marker typed by a user ends his turn
    and begins another: the model obeys text that came from a web page or a tool.

    ## What you will see
    One word missing or misunderstood, everywhere; answers that stop at a word; roles confused after a text that quotes
    a chat template.

    ## How to tell it from its look-alikes
    Every tokenizer turns the text of its special tokens into control ids: by design, and silent, since
    `encode_special_tokens=True` spells them out. DeepSeek's `<｜User｜>`, Qwen's `<think>`, Gemma's `<h1>` are added and
    not special: an info. Runs of spaces and line breaks, language codes (`eng_Latn`) and words in brackets are silent.
    Phi-4's markers all swallow spaces (`lstrip` and `rstrip`), which is an info; RoBERTa's `<mask>` is silent. A byte
    that is flagged special is TOK414.

    ## How to confirm
    Encode a sentence with the word inside a longer word, and look at the ids.

    ## How to repair it
    A server should encode what users write as text, marker by marker, as degarble's own encoder does. Flags are made
    alike safely: tokenizer.json is what decides. A flag that is out of line in both has to be looked up in the original.
    A word that was added by mistake is taken out of added_tokens only if nobody trained with it: not unattended.

    ## References
    huggingface/transformers#29279, huggingface/tokenizers#1347, PrimeIntellect-ai/renderers#116,
    huggingface/transformers#32136, dotnet/machinelearning#7337
    """
    if not tokenizer.file.endswith((".json", ".gguf")):
        return
    for token in tokenizer.added_tokens.values():
        if is_plain_text(token.content) and not (token.single_word and not token.special):
            if _is_byte(tokenizer, token.content):
                continue
            kind = "special" if token.special else "added"
            yield Finding(
                location=_place(tokenizer, token),
                message=f"{tokenizer.file}: {token.content!r} (id {token.token_id}) is a word that people write, and is "
                f"a token of its own ({kind}) wherever it stands, inside longer words too",
                measured={"special": token.special},
                bound={"added": False},
                fix=REMOVE_ADDED,
                fold=f"word {token.special}",
            )


@check("TOK420", severity=Severity.WARNING)
def word_is_user_defined(known_tokens: KnownTokens) -> Iterator[Finding]:
    """Sentencepiece finds user-defined pieces in a text first; control pieces it never finds there."""
    if not known_tokens.is_sentencepiece:
        return
    tokenizer = known_tokens.tokenizer
    control = {token.content for token in tokenizer.added_tokens.values()}
    for text in sorted(known_tokens.added_texts - control):
        if is_plain_text(text):
            yield Finding(
                location=Location(file=tokenizer.file, key="pieces", token=text, token_id=known_tokens.id_of(text)),
                message=f"{tokenizer.file}: {text!r} (id {known_tokens.id_of(text)}) is a word that people write, and is "
                "a user-defined piece, found wherever it stands, inside longer words too",
                measured={"user_defined": True},
                bound={"user_defined": False},
                fix=REMOVE_ADDED,
                fold="word user-defined",
            )


def _place(tokenizer: Tokenizer, token: AddedToken) -> Location:
    key = "tokenizer.ggml.token_type" if tokenizer.file.endswith(".gguf") else "added_tokens"
    return Location(file=tokenizer.file, key=key, token=token.content, token_id=token.token_id)


def _is_byte(tokenizer: Tokenizer, content: str) -> bool:
    """Bytes that are special are another rule's matter."""
    if tokenizer.kind == "byte-level" and len(content) == 1:
        return letters_to_bytes(content) is not None
    return BYTE_TOKEN.match(content) is not None


@check("TOK420", severity=Severity.WARNING)
def added_token_flags_disagree(tokenizer: Tokenizer, json_files: Mapping[str, JsonFile]) -> Iterator[Finding]:
    """Loaders of transformers take the flags of tokenizer_config.json, engines those of tokenizer.json."""
    if not tokenizer.file.endswith(".json") or CONFIG not in json_files:
        return
    config = json_files[CONFIG].value
    decoder: Any = config.get("added_tokens_decoder") if isinstance(config, dict) else None
    for name, entry in decoder.items() if isinstance(decoder, dict) else ():
        token = tokenizer.added_tokens.get(int(name)) if name.isascii() and name.isdecimal() and len(name) < 9 else None
        if token is None or not isinstance(entry, dict) or entry.get("content") != token.content:
            continue
        for flag in FLAGS:
            if isinstance(entry.get(flag), bool) and entry[flag] is not getattr(token, flag):
                yield _disagreement(tokenizer, token, f"added_tokens_decoder.{name}.{flag}", flag)


def _disagreement(tokenizer: Tokenizer, token: AddedToken, key: str, flag: str) -> Finding:
    place = Location(file=CONFIG, key=key, token=token.content, token_id=token.token_id)
    stored = getattr(token, flag)
    return Finding(
        location=place,
        places=(place, _place(tokenizer, token)),
        message=f"{CONFIG}: {key} is {not stored}, and {tokenizer.file} has {flag} {stored} for {token.content!r}: "
        "the same text is cut differently by loaders that read the one or the other",
        measured={flag: not stored},
        bound={flag: stored},
        fix=ALIGN_FLAGS,
        fold=f"flag {flag}",
    )


@check("TOK420", severity=Severity.INFO)
def markers_not_spared(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Added, not special, and no plain text: what a safe encoding has to know by name."""
    if not tokenizer.file.endswith((".json", ".gguf")):
        return
    tokens = list(tokenizer.added_tokens.values())
    markers = [
        token
        for token in tokens
        if not token.special and any(map(str.isalnum, token.content)) and not is_plain_text(token.content)
    ]
    if markers:
        yield _listed(
            tokenizer,
            markers,
            "are added and not special: encoding a user's text with special tokens off leaves them in",
        )
    greedy = _greedy(tokens)
    if greedy and not _are_few(greedy, tokens):
        yield _listed(tokenizer, greedy, "swallow the spaces beside them (lstrip, rstrip)")


@check("TOK420", severity=Severity.WARNING, confidence=Confidence.LIKELY)
def flags_out_of_line(tokenizer: Tokenizer) -> Iterator[Finding]:
    """A flag that one marker has and the others have not."""
    tokens = list(tokenizer.added_tokens.values())
    greedy = _greedy(tokens)
    for token in greedy if _are_few(greedy, tokens) else ():
        flags = " and ".join(flag for flag in ("lstrip", "rstrip") if getattr(token, flag))
        yield _out_of_line(tokenizer, token, flags, "the spaces beside it are swallowed, and its siblings leave them")
    for token in tokens:
        if token.single_word and not is_plain_text(token.content) and any(map(str.isalnum, token.content)):
            yield _out_of_line(
                tokenizer, token, "single_word", "it is cut into pieces wherever a letter stands beside it"
            )


def _greedy(tokens: list[AddedToken]) -> list[AddedToken]:
    return [token for token in tokens if (token.lstrip or token.rstrip) and token.content not in MASKS]


def _are_few(greedy: list[AddedToken], tokens: list[AddedToken]) -> bool:
    return len(greedy) <= MAX_GREEDY_SHARE * len(tokens)


def _out_of_line(tokenizer: Tokenizer, token: AddedToken, flags: str, effect: str) -> Finding:
    return Finding(
        location=_place(tokenizer, token),
        message=f"{tokenizer.file}: {token.content!r} (id {token.token_id}) is flagged {flags}: {effect}",
        measured={"flags": flags},
        bound={"flags": None},
        fix=COPY_FROM_ORIGINAL,
        fold=flags,
    )


def _listed(tokenizer: Tokenizer, tokens: list[AddedToken], what: str) -> Finding:
    shown = ", ".join(repr(token.content) for token in tokens[:MAX_SHOWN])
    more = f" and {len(tokens) - MAX_SHOWN} more" if len(tokens) > MAX_SHOWN else ""
    return Finding(
        location=_place(tokenizer, tokens[0]),
        message=f"{tokenizer.file}: {len(tokens)} tokens {what}: {shown}{more}",
        severity=Severity.INFO,
        measured={"tokens": len(tokens)},
    )
