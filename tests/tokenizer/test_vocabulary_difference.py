"""Two tokenizers beside each other, in one form and across forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.pipeline_difference import divergences, is_stored_alike
from degarble.tokenizer.round_trip import probe_texts
from degarble.tokenizer.vocabulary_difference import Kind, differences
from tests.family_patients import family_patients
from tests.tokenizer.small_tokenizers import added, byte_fallback, stored
from tests.tokenizer.trained import trained

PAIRS = [
    ("qwen3-gguf", "qwen3"),
    ("qwen3", "qwen3-gguf"),
    ("llama-3-gguf", "llama-3"),
    ("deepseek-v3-gguf", "deepseek-v3"),
    ("llama-2-gguf", "llama-2"),
    ("llama-2", "llama-2-sentencepiece"),
    ("llama-2-sentencepiece", "llama-2-gguf"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_forms_of_one_tokenizer_are_equal(one: str, other: str) -> None:
    if "sentencepiece" in one + other:
        pytest.importorskip("sentencepiece")
    mine, theirs = load_tokenizer(family_patients() / one), load_tokenizer(family_patients() / other)
    assert differences(mine, theirs) == []
    assert divergences(mine, theirs, probe_texts()) == []


def rename(document: Any) -> None:
    document["model"]["vocab"] = {
        ("odd" if at == 900 else piece): at for piece, at in document["model"]["vocab"].items()
    }


def lose(document: Any) -> None:
    document["model"]["vocab"] = {piece: at for piece, at in document["model"]["vocab"].items() if at < 1900}


def gain(document: Any) -> None:
    document["model"]["vocab"]["odd"] = len(document["model"]["vocab"])


def gain_added(document: Any) -> None:
    document["added_tokens"].append(added(len(document["model"]["vocab"]), "<new>", special=True))


def unflag(document: Any) -> None:
    document["added_tokens"][0]["special"] = False


def strip(document: Any) -> None:
    document["added_tokens"][0]["rstrip"] = True


def drop(document: Any) -> None:
    document["added_tokens"].clear()


def rename_added(document: Any) -> None:
    document["model"]["vocab"] = {
        ("<|e|>" if at == 0 else piece): at for piece, at in document["model"]["vocab"].items()
    }
    document["added_tokens"][0]["content"] = "<|e|>"


def merge(document: Any) -> None:
    document["model"]["merges"].reverse()


CHANGES: list[tuple[Callable[[Any], None], Kind]] = [
    (rename, Kind.CHANGED),
    (lose, Kind.LOST),
    (gain, Kind.GAINED),
    (gain_added, Kind.GAINED_ADDED),
    (unflag, Kind.NOT_SPECIAL),
    (drop, Kind.NOT_SPECIAL),
    (strip, Kind.FLAGS),
    (rename_added, Kind.RENAMED),
    (merge, Kind.MERGES),
]


@pytest.mark.parametrize(("change", "kind"), CHANGES)
def test_kinds(tmp_path: Path, change: Callable[[Any], None], kind: Kind) -> None:
    document = trained()
    change(document)
    mine, theirs = stored(tmp_path / "a", document), stored(tmp_path / "b", trained())
    (found,) = [one for one in differences(mine, theirs) if one.kind is kind]
    assert found.count >= 1 and found.found != found.expected
    assert {one.kind for one in differences(mine, theirs)} <= {kind, Kind.MERGES}


def both(tmp_path: Path, mine: Any, theirs: Any) -> tuple[Tokenizer, Tokenizer]:
    return stored(tmp_path / "a", mine), stored(tmp_path / "b", theirs)


def test_two_spellings_of_merges_are_equal(tmp_path: Path) -> None:
    document = trained()
    document["model"]["merges"] = [
        pair if isinstance(pair, str) else " ".join(pair) for pair in document["model"]["merges"]
    ]
    assert differences(*both(tmp_path, document, trained())) == []


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": []}),
        ("normalizer", {"type": "Replace", "pattern": {"String": "never seen"}, "content": "x"}),
        ("decoder", {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}),
    ],
)
def test_other_ways_of_writing_one_pipeline(tmp_path: Path, part: str, value: Any) -> None:
    mine, theirs = both(tmp_path, trained() | {part: value}, trained())
    assert divergences(mine, theirs, probe_texts()) == []


def test_metaspace_stands_for_prepend_and_replace(tmp_path: Path) -> None:
    document = byte_fallback()
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "Prepend", "prepend": "▁"}, document["normalizer"]],
    }
    newer = byte_fallback() | {
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
    }
    mine, theirs = both(tmp_path, newer, document)
    assert not is_stored_alike(mine, theirs, "normalizer")
    assert divergences(mine, theirs, ["a b", "x\ny"]) == []


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "NFC"}),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}),
        ("decoder", {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]}),
    ],
)
def test_other_pipelines(tmp_path: Path, part: str, value: Any) -> None:
    found = divergences(*both(tmp_path, trained() | {part: value}, trained()), probe_texts())
    assert [one.part for one in found] == ([] if part == "decoder" else [part])


def test_another_decoder(tmp_path: Path) -> None:
    found = divergences(*both(tmp_path, byte_fallback(strip=0), byte_fallback()), ["a"])
    assert [one.part for one in found] == ["decoder"]
    document = byte_fallback()
    document["decoder"]["decoders"][0]["content"] = "_"
    assert [one.part for one in divergences(*both(tmp_path, document, byte_fallback()), ["a"])] == ["decoder"]


def test_settings_of_the_model(tmp_path: Path) -> None:
    document = trained()
    document["model"] |= {"ignore_merges": True, "dropout": 0.1, "fuse_unk": None}
    found = divergences(*both(tmp_path, document, trained()), [])
    assert [one.part for one in found] == ["model.ignore_merges", "model.dropout"]
