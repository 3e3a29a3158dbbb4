"""Small tokenizers that were trained: by the tokenizers library, on our own corpora, with cuts of one's choice."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from degarble.tokenizer.corpora import corpus_names, make_corpus
from degarble.tokenizer.cuts import byte_level, gguf_pretokenizers


@cache
def texts() -> tuple[str, ...]:
    """What they are trained on."""
    return tuple(text for name in corpus_names() for text in make_corpus(name, 3, 40))


def trained(cuts: str | None = "llama-bpe", size: int = 2000) -> dict[str, Any]:
    """tokenizer.json of a byte-level BPE; `cuts` is a name of llama.cpp's, None does not cut."""
    document: dict[str, Any] = json.loads(_trained(cuts, size))
    return document


@cache
def _trained(cuts: str | None, size: int) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    regexes = (gguf_pretokenizers()[cuts].regexes or ()) if cuts else ()
    empty = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    parts = {"normalizer": None, "post_processor": None, "decoder": None, "pre_tokenizer": byte_level(regexes)}
    tokenizer = Tokenizer.from_str(json.dumps({**empty, **parts}))
    tokenizer.model = models.BPE()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return str(tokenizer.to_str())
