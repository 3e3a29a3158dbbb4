"""Finding the tokenizer of a checkpoint, and what is wrong with the file itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import EvidenceMissing, EvidenceUnjudged, MalformedFile, UsageError
from degarble.target import open_target
from degarble.tokenizer.gguf_vocabulary import read_gguf_vocabulary
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.special_tokens import KEEP, SKIP, SpecialTokenPolicy
from tests.tokenizer import small_tokenizers as small


def test_a_folder_a_file_and_a_source_are_the_same(golden: Path) -> None:
    folder = golden / "base-bf16"
    tokenizer = load_tokenizer(folder)
    assert tokenizer.kind == "byte-level"
    assert tokenizer.declared["tokenizer_config.json"]["eos_token"] == "<|im_end|>"
    assert load_tokenizer(folder / "tokenizer.json").pieces == tokenizer.pieces
    assert load_tokenizer(open_target(folder)).special_ids == tokenizer.special_ids
    assert tokenizer.pipeline["model"]["type"] == "BPE"
    assert tokenizer.ids_by_piece["<|im_end|>"] in tokenizer.special_ids


def test_a_folder_without_one(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EvidenceMissing, match="no tokenizer"):
        load_tokenizer(tmp_path)


def test_declared_tokens_may_be_objects(tmp_path: Path) -> None:
    tokenizer = small.stored(
        tmp_path,
        small.byte_level(),
        special_tokens_map={"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "unk_token": 7},
    )
    assert tokenizer.declared["special_tokens_map.json"] == {"bos_token": "<s>", "eos_token": "</s>"}


def test_an_id_given_twice_is_a_problem_and_the_first_counts(tmp_path: Path) -> None:
    document = small.byte_level()
    document["model"]["vocab"]["zz"] = 65
    tokenizer = small.stored(tmp_path, document)
    assert "id 65 is both 'A' and 'zz'" in tokenizer.problems[0]
    assert tokenizer.table.bytes_of(65) == b"A"
    document = small.byte_level()
    document["added_tokens"][0]["id"] = 65
    assert "id 65" in small.stored(tmp_path, document).problems[0]


@pytest.mark.parametrize("token_id", [65, 350, 296])
def test_an_added_id_that_the_library_ignores_is_a_problem(token_id: int, tmp_path: Path) -> None:
    """The library counts added tokens itself; a file whose ids it cannot reach is read otherwise than it says."""
    from tokenizers import Tokenizer as Library

    document = small.byte_level()
    token = document["added_tokens"][0]
    true = token["id"]
    token["id"] = token_id
    assert Library.from_str(json.dumps(document)).token_to_id(token["content"]) == true
    problems = small.stored(tmp_path, document).problems
    assert any(f"has id {token_id}; the tokenizers library gives {true}" in problem for problem in problems)


def test_a_hole_before_an_added_token_is_a_problem(tmp_path: Path) -> None:
    assert small.stored(tmp_path, small.byte_level()).problems == ()
    assert "tokenizers library gives" in small.stored(tmp_path, small.byte_level(hole=1)).problems[0]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model": {"vocab": {"a": -1}}}, MalformedFile),
        ({"model": {"vocab": {"a": 1 << 40}}}, MalformedFile),
        ({"model": {"vocab": {"a": True}}}, MalformedFile),
        ({"model": {"vocab": {"a": 1.5}}}, MalformedFile),
        ({"model": {"vocab": [["a"], "b"]}}, MalformedFile),
        ({"model": {"vocab": None}}, EvidenceUnjudged),
        ({"model": None}, MalformedFile),
        ({"added_tokens": [{"id": "x", "content": "y"}]}, MalformedFile),
        ({"added_tokens": [{"id": 1 << 40, "content": "y"}]}, MalformedFile),
        ({"decoder": "ByteLevel"}, MalformedFile),
    ],
)
def test_malformed_files(change: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        small.stored(tmp_path, small.byte_level() | change)


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b"{" * 10_000, b'{"model":{"vocab":' + b"[" * 100_000])
def test_files_that_are_no_json(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(raw)
    with pytest.raises(MalformedFile):
        load_tokenizer(tmp_path)


def test_special_token_policies(tmp_path: Path) -> None:
    tokenizer = small.stored(tmp_path, small.byte_level())
    end, tool, user = (tokenizer.ids_by_piece[name] for name in ("<|end|>", "<tool>", "<｜User｜>"))
    assert SKIP.hidden_ids(tokenizer) == {end}
    assert KEEP.hidden_ids(tokenizer) == frozenset()
    assert SpecialTokenPolicy(keep=frozenset({"<|end|>"})).hidden_ids(tokenizer) == frozenset()
    assert SpecialTokenPolicy(hide=frozenset({"<tool>", "<｜User｜>"})).hidden_ids(tokenizer) == {end, tool, user}
    with pytest.raises(UsageError, match="no token '<none>'"):
        SpecialTokenPolicy(keep=frozenset({"<none>"})).hidden_ids(tokenizer)


def test_gguf_files(golden: Path) -> None:
    tokenizer = load_tokenizer(golden / "llama.cpp-q4_0" / "model-Q4_0.gguf")
    healthy = load_tokenizer(golden / "base-bf16")
    assert tokenizer.kind == "byte-level"
    assert list(tokenizer.table.pieces)[: healthy.num_ids] == list(healthy.table.pieces)
    assert tokenizer.special_ids >= healthy.special_ids


def test_gguf_token_types() -> None:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "<0xE4>", "▁a▁b", "▁user", "[PAD5]", "\udce4x"],
        "tokenizer.ggml.token_type": [2, 3, 6, 1, 4, 5, 1],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 99,
    }
    tokenizer = read_gguf_vocabulary(metadata, "m.gguf")
    assert list(tokenizer.table.pieces) == [b"<unk>", b"<s>", b"\xe4", b" a b", "▁user".encode(), None, b"\xe4x"]
    assert tokenizer.special_ids == {0, 1}
    assert tokenizer.table.strip == 1
    assert tokenizer.declared["m.gguf"] == {"bos_token": "<s>"}
    assert read_gguf_vocabulary(metadata | {"tokenizer.ggml.add_space_prefix": False}, "m.gguf").table.strip == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, EvidenceUnjudged),
        ({"tokenizer.ggml.model": None}, EvidenceMissing),
        ({"tokenizer.ggml.tokens": [1, 2]}, MalformedFile),
        ({"tokenizer.ggml.token_type": [1]}, MalformedFile),
    ],
)
def test_gguf_metadata_that_cannot_be_used(change: dict[str, Any], error: type[Exception]) -> None:
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "Ġ"]}
    assert read_gguf_vocabulary(metadata, "m.gguf").table.bytes_of(1) == b" "
    with pytest.raises(error):
        read_gguf_vocabulary({**metadata, **change}, "m.gguf")


def test_json_is_preferred_to_gguf(tmp_path: Path, golden: Path) -> None:
    (tmp_path / "model.gguf").symlink_to(golden / "llama.cpp-q4_0" / "model-Q4_0.gguf")
    (tmp_path / "tokenizer.json").write_text(json.dumps(small.unigram()))
    assert load_tokenizer(tmp_path).kind == "metaspace"
