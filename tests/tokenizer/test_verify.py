"""Conformance: each way of decoding wrongly is found and explained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from degarble.errors import EvidenceUnjudged, MissingExtra, UsageError
from degarble.tokenizer.decoders import open_decoder
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.verify import DecoderRow, compare_tokenizers, samples_for, verify_decoder
from tests.tokenizer import small_tokenizers as small


@pytest.fixture
def byte_level(tmp_path: Path) -> Tokenizer:
    return small.stored(tmp_path, small.byte_level())


@pytest.fixture
def byte_fallback(tmp_path: Path) -> Tokenizer:
    return small.stored(tmp_path, small.byte_fallback())


def run(name: str, tokenizer: Tokenizer, folder: str = "") -> DecoderRow:
    return verify_decoder(name, open_decoder(name, tokenizer, folder), tokenizer, samples_for(tokenizer, count=4))


def test_the_exact_decoder_agrees(byte_level: Tokenizer, tmp_path: Path) -> None:
    row = run("exact", byte_level)
    assert (row.num_exact, row.num_late_chars, row.first) == (row.num_sequences, 0, None)
    row = run("exact", small.stored(tmp_path, small.byte_fallback()))
    assert (row.num_exact, row.num_late_chars) == (row.num_sequences, 0)


def test_the_naive_decoder_is_found(byte_level: Tokenizer) -> None:
    row = run("naive", byte_level)
    assert row.num_exact < row.num_sequences / 2
    assert row.first is not None and "inside a character" in row.first.reason
    assert len(row.first.bytes_hex) == len(row.first.ids)
    assert any(int(shown[:2], 16) >= 0x80 for shown in row.first.bytes_hex)


def test_spaces_and_runs_of_byte_tokens(byte_fallback: Tokenizer) -> None:
    naive = run("naive", byte_fallback).first
    assert naive is not None and "space" in naive.reason
    whole = run("whole", byte_fallback)
    assert whole.first is not None and "run of byte tokens" in whole.first.reason
    stream = run("decode-stream", byte_fallback)
    assert stream.num_raised > 0


def test_a_user_s_own_decoder(byte_level: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_decoder.py").write_text(
        "def nothing(ids): return ''\n"
        "def deltas(ids): return ['x' for _ in ids]\n"
        "def fails(ids): raise KeyError(ids[0])\n"
        "text = 'no function'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    nothing = run("own_decoder:nothing", byte_level)
    assert nothing.first is not None and "missing" in nothing.first.reason
    assert run("own_decoder:deltas", byte_level).num_exact == 0
    fails = run("own_decoder:fails", byte_level)
    assert fails.first is not None and fails.num_raised == fails.num_sequences
    assert fails.first.reason.startswith("raises KeyError")
    for name, error in (("own_decoder:text", UsageError), ("no_such_module_:f", MissingExtra), ("other", UsageError)):
        with pytest.raises(error):
            open_decoder(name, byte_level, "")
    sys.modules.pop("own_decoder", None)


def test_reasons(byte_level: Tokenizer) -> None:
    index = byte_level.table.pieces.index
    samples = {"x": [type(samples_for(byte_level, count=1)["english"][0])(None, [index(b"a"), index(b"\xe4"), 66])]}

    def reason(text: str) -> str:
        def decode(token_ids: Sequence[int]) -> list[str]:
            return [text]

        row = verify_decoder("f", decode, byte_level, samples)
        assert row.first is not None
        return row.first.reason

    assert "left out" in reason("aB")
    assert "never released" in reason("a")
    assert reason("a\ufffd") == "the end is missing"
    assert reason("zz") == "another text"


def test_a_gguf_file_has_no_library_decoder(golden: Path) -> None:
    tokenizer = load_tokenizer(golden / "llama.cpp-q4_0" / "model-Q4_0.gguf")
    for name in ("decode-stream", "whole"):
        with pytest.raises(EvidenceUnjudged):
            open_decoder(name, tokenizer, "")


def test_two_tokenizers(tmp_path: Path) -> None:
    reference = small.stored(tmp_path / "a", small.byte_level())
    samples = samples_for(reference, count=2)
    assert compare_tokenizers(reference, reference, samples) == []
    document = small.byte_level()
    document["added_tokens"][1]["special"] = True
    vocab = document["model"]["vocab"]
    vocab["A"], vocab["B"] = vocab["B"], vocab["A"]
    found = compare_tokenizers(small.stored(tmp_path / "b", document), reference, samples)
    assert [item.kind for item in found[:3]] == ["bytes", "bytes", "special"]
    assert found[0].found == "b'B'" and found[0].expected == "b'A'"


def test_a_lost_pre_tokenizer_is_seen_in_ids_only(tmp_path: Path) -> None:
    document = small.byte_level()
    document["model"]["ignore_merges"] = False
    document["model"]["merges"] = ["1 2", "12 3"]
    vocab = document["model"]["vocab"]
    document["added_tokens"] = []
    vocab.update({"12": len(vocab), "123": len(vocab) + 1})
    reference = small.stored(tmp_path / "a", document)
    split = {"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Isolated", "invert": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, document["pre_tokenizer"]]}
    other = small.stored(tmp_path / "b", document)
    found = compare_tokenizers(other, reference, samples_for(other, count=20))
    assert {item.kind for item in found} == {"ids"}


@pytest.mark.engine
def test_the_streamer_of_transformers(golden: Path) -> None:
    folder = golden / "base-bf16"
    tokenizer = load_tokenizer(folder)
    row = run("transformers", tokenizer, str(folder))
    assert row.num_sequences == 60
    assert row.num_exact >= 50
    assert row.num_late_chars > 0  # it waits for a space or a newline
