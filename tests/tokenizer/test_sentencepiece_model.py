"""`tokenizer.model` against sentencepiece's own decode."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import MalformedFile
from degarble.tokenizer.detokenize import Detokenizer
from degarble.tokenizer.encode import Encoder
from degarble.tokenizer.load import load_tokenizer

sentencepiece = pytest.importorskip("sentencepiece")
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {"byte_fallback": True, "remove_extra_whitespaces": False},
    "default": {"byte_fallback": True},
    "no prefix": {"byte_fallback": True, "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "no bytes": {"byte_fallback": False, "model_type": "unigram"},
}


@pytest.fixture(params=OPTIONS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    """A model trained in a moment, and its folder."""
    written = io.BytesIO()
    options = {"model_type": "bpe", "vocab_size": 330 if request.param != "no bytes" else 60} | OPTIONS[request.param]
    texts = ["the quick brown fox jumps over the lazy dog", "你好 世界", "  indented   code", "naïve café"] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=written, hard_vocab_limit=False, minloglevel=2, **options
    )
    (tmp_path / "tokenizer.model").write_bytes(written.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue()), tmp_path


def test_decode_is_the_library_s(model: tuple[Any, Path]) -> None:
    library, folder = model
    tokenizer = load_tokenizer(folder)
    detokenizer = Detokenizer(tokenizer)
    plain = [at for at in range(tokenizer.num_ids) if not library.is_byte(at) and not library.is_unknown(at)]
    rng = random.Random(1)
    for _ in range(300):
        ids = rng.choices(plain, k=rng.randint(1, 10))
        assert detokenizer.decode(ids) == library.decode(ids), [library.id_to_piece(at) for at in ids]


def test_texts_come_back(model: tuple[Any, Path]) -> None:
    library, folder = model
    tokenizer = load_tokenizer(folder)
    for text in ("the fox", "你好", "over   the café \U0001f336 x"):
        ids = Encoder(tokenizer).encode(text)
        assert ids == library.encode(text)
        assert Detokenizer(tokenizer).decode(ids) == library.decode(ids)


def test_the_unknown_token_prints_what_the_library_prints(model: tuple[Any, Path]) -> None:
    library, folder = model
    tokenizer = load_tokenizer(folder)
    ids = [library.encode("fox")[-1], library.unk_id()]
    assert Detokenizer(tokenizer).decode(ids) == library.decode(ids)


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x00not a model")
    with pytest.raises(MalformedFile):
        load_tokenizer(tmp_path)
