"""How a vocabulary is recognised, and what its family's cuts are."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest

from degarble.tokenizer.cut_families import (
    cut_families,
    ordinary_pieces,
    probes,
    recognise,
    vocabulary_digest,
)
from degarble.tokenizer.cuts import Cutter, byte_level, gguf_pretokenizers
from degarble.tokenizer.families import families
from degarble.tokenizer.gguf_vocabulary import read_gguf_vocabulary
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.tokenizer_json import read_tokenizer_json
from tests.family_patients import NAMES, family_patients
from tests.memory_source import MemorySource
from tests.tokenizer.trained import trained

EXPECTED = {
    "deepseek-v3": "deepseek-v3",
    "qwen3": "qwen2",
    "llama-3": "llama-3",
    "gpt-oss": "gpt-oss",
    "gemma-3": "gemma-3",
    "llama-2": "llama-2",
}


def read(document: Any) -> Tokenizer:
    return read_tokenizer_json(MemorySource({"tokenizer.json": json.dumps(document).encode()}), "tokenizer.json", {})


@pytest.mark.parametrize("name", NAMES)
def test_family_patients_are_recognised_by_their_specials(name: str) -> None:
    found = recognise(load_tokenizer(family_patients() / name))
    base = name.removesuffix("-gguf").removesuffix("-sentencepiece")
    if base == "gemma-2":
        assert found is None
    else:
        assert found is not None and (found.family.name, found.vocabulary) == (EXPECTED[base], None)


def test_another_size_is_another_vocabulary() -> None:
    document = trained(size=900)
    document["added_tokens"] = [
        {"id": 151643 + at, "content": f"<|{text}|>", "special": True}
        for at, text in enumerate(["endoftext", "im_start", "im_end"])
    ]
    found = recognise(read(document))
    assert found is not None and found.family.name == "qwen2"
    assert not found.is_full_size and not found.has_json_cuts
    assert recognise(read(trained())) is None


def test_an_empty_vocabulary() -> None:
    assert recognise(read_gguf_vocabulary({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": []}, "x")) is None


def test_padding_and_added_tokens_are_left_out() -> None:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["<s>", "a", "[PAD2]", "b", "[PAD4]", "[PAD5]"],
        "tokenizer.ggml.token_type": [3, 1, 1, 1, 5, 1],
    }
    assert ordinary_pieces(read_gguf_vocabulary(metadata, "x.gguf")) == ["a", "[PAD2]", "b"]
    assert vocabulary_digest(["a", "b"]) != vocabulary_digest(["ab"]) != vocabulary_digest(["b", "a"])


def test_probes_tell_all_known_cuts_apart() -> None:
    known = {meaning.cuts: meaning.regexes for meaning in gguf_pretokenizers().values() if meaning.regexes}
    cut = {name: [Cutter(None, byte_level(regexes)).cuts(text) for text in probes()] for name, regexes in known.items()}
    assert all(cut[one] != cut[other] for one, other in combinations(cut, 2))


def test_names_in_the_table_exist() -> None:
    names = {family.name for family in families()}
    for family in cut_families():
        assert family.known_as <= names
        assert family.gguf_name is None or gguf_pretokenizers()[family.gguf_name].cuts == family.gguf_cuts
        assert not family.cuts or len(family.cuts) == len(probes())


def test_written_cuts_follow_from_the_names() -> None:
    """Where both are known; the probes as the family's normaliser leaves them are the joined cuts."""
    for family in cut_families():
        known = gguf_pretokenizers()[family.gguf_name].regexes if family.gguf_name else None
        if known is None or not family.cuts or family.name == "qwen2":
            continue
        cutter = Cutter(None, byte_level(known))
        assert [tuple(cutter.cuts(text)) for text in probes()] == list(family.cuts), family.name


def test_spaces_of_sentencepiece_may_be_cut() -> None:
    family = next(one for one in cut_families() if one.name == "llama-2")
    whole = family.cuts[2][0]
    words = [f"▁{word}" for word in whole.removeprefix("▁").split("▁")]
    assert family.is_cut([whole], 2) and family.is_cut([whole.removeprefix("▁")], 2) and family.is_cut(words, 2)
    assert not family.is_cut([whole[:7], whole[7:]], 2) and not family.is_cut([whole + "x"], 2)
    assert not family.is_cut([], 2)
