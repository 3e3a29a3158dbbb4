"""Where token ids come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.errors import EvidenceMissing, UsageError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.numerics.tokens import batch_of, built_in_texts, encode, random_batch, read_prompts
from tests.degarble_engine.tiny_models import folder


def test_built_in_texts_have_several_scripts() -> None:
    texts = built_in_texts()
    assert len(texts) >= 8
    assert any("\u4e00" <= c <= "\u9fff" for text in texts for c in text)
    assert any("\u0600" <= c <= "\u06ff" for text in texts for c in text)


def test_padding_is_not_valid() -> None:
    batch = batch_of([[1, 2, 3], [4]], "test")
    assert batch.num_tokens == 4
    assert batch.place(3) == (1, 0)
    with pytest.raises(UsageError):
        batch_of([[]], "test")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("one\n\ntwo\n", ["one", "two"]),
        ('{"text": "a"}\n{"prompt": "b"}\n', ["a", "b"]),
        ('["x", "y"]', ["x", "y"]),
    ],
)
def test_prompt_files(content: str, wanted: list[str], tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text(content)
    assert read_prompts(str(file)) == wanted


@pytest.mark.parametrize("content", ["", '{"text": 5}\n', '{"text": "a"\n', "[1, 2]", '["", "x"]', "\xff"])
def test_bad_prompt_files_say_so(content: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match="--prompts"):
        read_prompts(str(file))


def test_without_a_tokenizer_the_reason_is_said() -> None:
    evidence = Evidence(open_target(folder("llama")), Settings())
    with pytest.raises(EvidenceMissing, match=r"tokenizer\.json"):
        encode(["x"], [evidence], "test")
    assert random_batch(50).ids.max() < 50


def test_ids_are_those_of_the_checkpoints_tokenizer(golden: Path) -> None:
    evidence = Evidence(open_target(golden / "base-bf16"), Settings())
    batch = encode(["a short text"], [evidence], "test")
    assert batch.num_tokens == len(batch.pieces[0]) > 0


@pytest.mark.parametrize("text", ["two  words\nand a line", "naïve 海边的灯塔 😀 end"])
def test_pieces_join_to_the_text(text: str, golden: Path) -> None:
    evidence = Evidence(open_target(golden / "base-bf16"), Settings())
    batch = encode([text], [evidence], "test")
    assert "".join(batch.pieces[0]).removeprefix("<s>") == text
    assert len(batch.pieces[0]) == batch.num_tokens
