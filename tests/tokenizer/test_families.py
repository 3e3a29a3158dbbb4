"""The table of families: consistent with itself, and told apart by vocabularies."""

from __future__ import annotations

import pytest

from degarble.tokenizer.families import MIN_MATCHED, Family, all_texts, families, generic_texts, identify, names_of
from degarble.tokenizer.load import load_tokenizer
from tests.family_patients import NAMES, family_patients, family_tokenizer

EXPECTED = {
    "deepseek-v3": "DeepSeek V3",
    "qwen3": "Qwen 3",
    "llama-3": "Llama 3",
    "gpt-oss": "GPT-OSS",
    "gemma-3": "Gemma 3",
    "gemma-2": "Gemma 2",
    "llama-2": "Llama 2",
}


def by_name(name: str) -> Family:
    return next(family for family in families() if family.name == name)


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_each_family(family: Family) -> None:
    assert len(set(family.ids.values())) == len(family.ids), "one id, one token"
    assert set(family.special) <= set(family.ids)
    assert family.rows and family.roles["eos"] and family.texts
    assert all(at < max(family.rows) for at in family.ids.values())
    assert family.first_id <= min(family.ids.values(), default=0)


@pytest.mark.parametrize("family", [f for f in families() if len(f.ids) >= MIN_MATCHED], ids=lambda family: family.name)
def test_a_family_s_own_ids_identify_it(family: Family) -> None:
    pieces: list[str | None] = [None] * max(family.rows)
    for text, at in {**family.ids, **family.ordinary}.items():
        pieces[at] = text
    assert family in identify(pieces)


def test_names_are_unique_and_generic_texts_are_used() -> None:
    assert len({family.name for family in families()}) == len(families())
    assert {"<s>", "<|im_end|>"} <= generic_texts() & all_texts()


@pytest.mark.parametrize("name", NAMES)
def test_patients(name: str) -> None:
    expected = EXPECTED[name.removesuffix("-gguf").removesuffix("-sentencepiece")]
    assert names_of(identify(load_tokenizer(family_patients() / name).pieces)) == expected


def test_facts_of_the_incident() -> None:
    """What a story says of DeepSeek's ids, and what is published."""
    assert by_name("DeepSeek V3").ids["<|EOT|>"] == 128805
    assert by_name("DeepSeek Coder").ids["<|EOT|>"] == 32021
    assert "<|EOT|>" not in by_name("DeepSeek LLM").texts
    ends = {f.name for f in families() if f.lineage == "DeepSeek" and 100001 in f.role_ids["eos"]}
    assert ends == {"DeepSeek V2", "DeepSeek LLM"}
    assert not any(f.ids.get("<|EOT|>") == 100001 for f in families())


def test_unknown_and_empty_vocabularies() -> None:
    assert identify([]) == ()
    assert identify([None] * 200_000) == ()
    assert identify(["<unk>", "<s>", "</s>", *map(str, range(40_000))]) == ()


def test_names_in_a_row() -> None:
    found = [by_name(name) for name in ("DeepSeek V3", "DeepSeek R1", "Llama 2")]
    assert names_of(found) == "DeepSeek V3, R1 or Llama 2"
    assert names_of(found[:1]) == "DeepSeek V3"


def test_a_fine_tune_is_still_its_family() -> None:
    pieces: list[str | None] = list(range(128256))  # type: ignore[arg-type]
    for entry in family_tokenizer("llama-3").added:
        pieces[entry["id"]] = entry["content"]
    pieces[128001] = "<|renamed|>"
    assert names_of(identify(pieces)) == "Llama 3"
