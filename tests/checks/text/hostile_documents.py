"""tokenizer.json documents that break every expectation and still have to be read or refused."""

from __future__ import annotations

from typing import Any

from tests.tokenizer.trained import trained


def hostile_documents() -> dict[str, Any]:
    """Name -> document."""
    deep: Any = {"type": "ByteLevel"}
    for _ in range(200):
        deep = {"type": "Sequence", "pretokenizers": [deep]}
    changed: dict[str, dict[str, Any]] = {
        "no model": {"model": None},
        "no vocabulary": {"model": {"type": "BPE", "vocab": {}, "merges": []}},
        "merges of numbers": {"model": trained()["model"] | {"merges": [1, 2]}},
        "merges of three": {"model": trained()["model"] | {"merges": [["a", "b", "c"]]}},
        "merges are null": {"model": trained()["model"] | {"merges": None}},
        "merges are a text": {"model": trained()["model"] | {"merges": "a b"}},
        "merges without spaces": {"model": trained()["model"] | {"merges": ["ab", "", " ", "a  b"]}},
        "lone surrogates": {"model": trained()["model"] | {"merges": [["\ud800", "a"]]}},
        "surrogate pieces": {"model": {"type": "BPE", "vocab": {"\ud800": 0, "a": 1, "": 2}, "merges": []}},
        "huge id": {"model": trained()["model"] | {"vocab": {"a": 10**18}}},
        "negative id": {"model": trained()["model"] | {"vocab": {"a": -1}}},
        "id true": {"model": trained()["model"] | {"vocab": {"a": True, "b": 0}}},
        "id 0.0": {"model": trained()["model"] | {"vocab": {"a": 0.0}}},
        "id null": {"model": trained()["model"] | {"vocab": {"a": None}}},
        "vocab is a list": {"model": trained()["model"] | {"vocab": [["a", 0.0], ["b", -1.0]]}},
        "vocab is a list of lists": {"model": trained()["model"] | {"vocab": [[], [1]]}},
        "one id for all": {"model": trained()["model"] | {"vocab": {"a": 0, "b": 0, "ab": 0}}},
        "holes": {"model": trained()["model"] | {"vocab": {"a": 5, "b": 1000}}},
        "long piece": {"model": {"type": "BPE", "vocab": {"a" * 100_000: 0, "a": 1}, "merges": []}},
        "deep pre-tokenizer": {"pre_tokenizer": deep},
        "unknown pre-tokenizer": {"pre_tokenizer": {"type": "Nothing"}},
        "broken regex": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated"}},
        "removes everything": {
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Removed", "invert": False}
        },
        "unknown normalizer": {"normalizer": {"type": "Nothing"}},
        "erases everything": {"normalizer": {"type": "Replace", "pattern": {"Regex": "(?s)."}, "content": ""}},
        "odd truncation": {"truncation": {"max_length": [10**18]}},
        "truncation is a number": {"truncation": 7},
        "many added tokens": {
            "added_tokens": [{"id": 2000 + at, "content": f"<{at}>", "special": at % 2 == 0} for at in range(20_000)]
        },
        "empty added token": {"added_tokens": [{"id": 2000, "content": "", "rstrip": True}]},
        "added token is a space": {"added_tokens": [{"id": 2000, "content": " ", "lstrip": True, "rstrip": True}]},
        "unknown token is no piece": {"model": trained()["model"] | {"unk_token": "no such piece", "fuse_unk": 7}},
    }
    return {name: trained() | parts for name, parts in changed.items()}
