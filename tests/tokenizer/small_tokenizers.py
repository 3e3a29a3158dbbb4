"""Small tokenizers of each kind, as tokenizer.json documents: all bytes can be written, characters are cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from degarble.tokenizer.byte_alphabet import bytes_to_letters
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer

CUT_CHARACTERS = ("客", "🌶", "é", "한", "\ufffd", "\ue005")
WORDS = ("the", " the", " Paris", "\n", "  ", "def", " x", "。", "🌶🌶")


def added(token_id: int, content: str, *, special: bool) -> dict[str, Any]:
    """One entry of added_tokens."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": content, "special": special, **flags}


def byte_level(*, hole: int = 0) -> dict[str, Any]:
    """All single bytes, some words, pieces that begin or end inside characters; `hole` ids without a string."""
    pieces = [bytes([byte]) for byte in range(256)]
    pieces += [word.encode() for word in WORDS]
    for char in CUT_CHARACTERS:
        data = char.encode()
        pieces += [data, *(data[:cut] for cut in range(2, len(data))), *(data[cut:] for cut in range(1, len(data) - 1))]
        pieces += [b" " + data[:1], data[1:] + b"a"]
    vocab = {letters: at for at, letters in enumerate(dict.fromkeys(map(bytes_to_letters, pieces)))}
    end = len(vocab)
    return {
        "version": "1.0",
        "added_tokens": [
            added(end, "<|end|>", special=True),
            added(end + 1, "<tool>", special=False),
            added(end + 2 + hole, "<｜User｜>", special=False),
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": False, "ignore_merges": True},
    }


def byte_fallback(*, strip: int = 1) -> dict[str, Any]:
    """Llama-2's form: byte tokens, U+2581 for spaces, one leading space dropped."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁▁", "▁the", "the", "▁Paris", "客", "🌶", "é", "x", "\ufffd", "▁▁▁▁x", "\n"]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if strip:
        decoders.append({"type": "Strip", "content": " ", "start": strip, "stop": 0})
    return {
        "version": "1.0",
        "added_tokens": [added(at, pieces[at], special=True) for at in range(3)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "vocab": {piece: at for at, piece in enumerate(pieces)},
            "merges": [],
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def unigram(**decoder: Any) -> dict[str, Any]:
    """T5's form: scores, U+2581 for spaces, no bytes."""
    pieces = ["<pad>", "</s>", "<unk>", "▁", "▁the", "the", "▁a▁b", "x▁y", "客", "▁▁x", "."]
    return {
        "version": "1.0",
        "added_tokens": [added(0, "<pad>", special=True), added(1, "</s>", special=True)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": None,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True} | decoder,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [[piece, -float(at)] for at, piece in enumerate(pieces)]},
    }


def wordpiece(*, cleanup: bool = True) -> dict[str, Any]:
    """BERT's form."""
    pieces = ["[PAD]", "[UNK]", "the", "##se", "model", "##s", ".", "'", "don", "do not", "n't", "!", "##.", "s", "客"]
    return {
        "version": "1.0",
        "added_tokens": [added(0, "[PAD]", special=True), added(1, "[UNK]", special=True)],
        "normalizer": None,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": cleanup},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: at for at, piece in enumerate(pieces)},
        },
    }


def stored(folder: Path, document: Any, **others: Any) -> Tokenizer:
    """Write a tokenizer.json (and other JSON files beside it) and load it."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    for name, content in others.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return load_tokenizer(folder)


def library_text(document: Any, token_ids: Sequence[int]) -> str:
    """What the tokenizers library decodes, special tokens shown."""
    from tokenizers import Tokenizer as Library

    text: str = Library.from_str(json.dumps(document)).decode(list(token_ids), skip_special_tokens=False)
    return text
