"""Parts run by the library, without a vocabulary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from degarble.tokenizer.library_pipeline import LibraryPipeline, LibraryRefused
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, unigram, wordpiece


@pytest.mark.parametrize("document", [byte_level(), byte_fallback(), unigram(), wordpiece()])
def test_same_as_the_whole_tokenizer(document: Any) -> None:
    whole = Library.from_str(json.dumps(document))
    part = LibraryPipeline(**{name: document[name] for name in ("normalizer", "pre_tokenizer", "decoder")})
    ids = list(range(whole.get_vocab_size()))
    tokens = [whole.id_to_token(at) or "" for at in ids]
    assert part.decode(tokens) == whole.decode(ids, skip_special_tokens=False)
    text = "the Paris 客"
    assert part.normalize(text) == (whole.normalizer.normalize_str(text) if whole.normalizer else text)


def test_without_parts() -> None:
    nothing = LibraryPipeline()
    assert nothing.decode(["a", "b"]) == "a b"
    assert nothing.pre_tokens("a b") == ["a b"]


@pytest.mark.parametrize("decoder", [{"type": "Unheard"}, 5, {"type": "Strip", "content": "ab", "start": 0, "stop": 0}])
def test_refused(decoder: Any) -> None:
    with pytest.raises(LibraryRefused):
        LibraryPipeline(decoder=decoder)


def test_ctrl_c_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, tokens: Any) -> None:
        raise KeyboardInterrupt

    pipeline = LibraryPipeline(decoder={"type": "Fuse"})
    monkeypatch.setattr(pipeline, "_library", type("Fake", (), {"decoder": type("D", (), {"decode": interrupted})()})())
    with pytest.raises(KeyboardInterrupt):
        pipeline.decode(["a"])
