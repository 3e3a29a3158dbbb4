"""Filler vocabularies of true size: every id of a family has a piece, and every longer piece a merge that makes it."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Sequence
from typing import Any

from degarble.tokenizer.byte_alphabet import byte_letters

BYTE_SPACE, SPACE = "Ġ", "▁"
Special = tuple[int, str, bool]
"""Id, text, and whether it is flagged special."""


def words(space: str) -> Iterator[tuple[str, str]]:
    """Left and right part of ever longer made-up words; a shorter one comes before all that are made of it."""
    for length in itertools.count(1):
        for letters in itertools.product((space, *string.ascii_lowercase), *[string.ascii_lowercase] * (length - 1)):
            for last in string.ascii_lowercase:
                yield "".join(letters), last


def byte_level(size: int, first: Sequence[str] = ()) -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces by id and merges: `first`, then all bytes, then words up to `size`."""
    pieces = [*first, *sorted(byte_letters())]
    merges = list(itertools.islice(words(BYTE_SPACE), size - len(pieces)))
    return pieces + [left + right for left, right in merges], merges


def byte_fallback(first: Sequence[str], size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces by id and merges: `first` (specials and the 256 bytes among them), letters, then words up to `size`."""
    taken = set(first)
    single = [char for char in (SPACE, *map(chr, range(0x21, 0x7F))) if char not in taken]
    room = size - len(first) - len(single)
    merges = [pair for pair in itertools.islice(words(SPACE), room + 100) if "".join(pair) not in taken][:room]
    return [*first, *single, *("".join(pair) for pair in merges)], merges


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def added(specials: Sequence[Special], *, normalized_if_plain: bool = False) -> list[dict[str, Any]]:
    """Entries of `added_tokens`; DeepSeek flags those that are not special as normalized."""
    return [
        {
            "id": at,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": normalized_if_plain and not special,
            "special": special,
        }
        for at, text, special in specials
    ]


def document(
    pieces: Sequence[str], merges: Sequence[tuple[str, str]], added_tokens: list[dict[str, Any]], **parts: Any
) -> dict[str, Any]:
    """A tokenizer.json; `parts` are its pipeline, and `model` what differs from a plain BPE."""
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **parts.get("model", {}),
        "vocab": {piece: at for at, piece in enumerate(pieces)},
        "merges": [f"{left} {right}" for left, right in merges],
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        **parts,
        "model": model,
    }


def byte_level_parts(*regexes: str, ignore_merges: bool = False, **others: Any) -> dict[str, Any]:
    """Split by each regex in turn, then bytes."""
    split = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in regexes
    ]
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*split, plain]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"ignore_merges": ignore_merges},
        **others,
    }


def byte_fallback_parts(*, strip: bool, **others: Any) -> dict[str, Any]:
    """U+2581 for spaces, bytes where nothing else fits; Llama 2 writes one space in front and takes it away again."""
    replace: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    normalizer: dict[str, Any] = replace
    if strip:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}
    return {
        "normalizer": normalizer,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        **others,
    }


def bos_template(text: str, token_id: int) -> dict[str, Any]:
    """A post-processor that writes BOS in front."""
    first = {"SpecialToken": {"id": text, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [first, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {text: {"id": text, "ids": [token_id], "tokens": [text]}},
    }
