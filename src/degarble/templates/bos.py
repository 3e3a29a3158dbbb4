"""Who writes the beginning-of-sentence token: the template, the tokenizer, both, or nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from degarble.tokenizer.families import Family
from degarble.tokenizer.interface import Tokenizer

ADDING_CLASSES = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")
"""Classes of transformers, each with a `…Fast` twin, that build their own post-processor from `add_bos_token`."""
ADDING_PRETOKENIZERS = frozenset(
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken", "chameleon")
)
"""Values of `tokenizer.ggml.pre` for which llama.cpp adds BOS where the file does not say (llama-vocab.cpp, 2025)."""
OWN_TEXTS = frozenset(("<|begin_of_text|>", "<bos>", "<｜begin▁of▁sentence｜>"))
"""BOS tokens that nothing else uses: the models that have them were never trained without."""


class Adder(msgspec.Struct, frozen=True, kw_only=True):
    """One place that makes a tokenizer write BOS in front of every text."""

    file: str
    key: str
    count: int
    """How many; 0 where the place says that none is written."""


def adders(tokenizer: Tokenizer, tokenizer_config: Mapping[str, Any], bos: str) -> Iterator[Adder]:
    """What each place says. They may contradict each other: which is obeyed depends on the loader."""
    if tokenizer.file.endswith(".gguf"):
        yield _gguf_adder(tokenizer)
        return
    declared = tokenizer_config.get("add_bos_token")
    stated = str(tokenizer_config.get("tokenizer_class", "")).removesuffix("Fast")
    if isinstance(declared, bool):
        yield Adder(file="tokenizer_config.json", key="add_bos_token", count=int(declared))
    elif stated in ADDING_CLASSES:
        yield Adder(file="tokenizer_config.json", key="tokenizer_class", count=1)
    processor = tokenizer.pipeline.get("post_processor")
    if processor is not None:
        yield Adder(file=tokenizer.file, key="post_processor", count=_leading(processor, bos))


def _gguf_adder(tokenizer: Tokenizer) -> Adder:
    key = "tokenizer.ggml.add_bos_token"
    declared = tokenizer.pipeline.get("add_bos_token")
    if isinstance(declared, bool):
        return Adder(file=tokenizer.file, key=key, count=int(declared))
    by_default = tokenizer.pipeline.get("model") == "llama" or tokenizer.pipeline.get("pre") in ADDING_PRETOKENIZERS
    return Adder(file=tokenizer.file, key=key, count=int(by_default))


def _leading(processor: object, bos: str) -> int:
    """Special tokens equal to BOS that stand before the text, in a TemplateProcessing or a Sequence with one."""
    if not isinstance(processor, dict):
        return 0
    parts = processor.get("processors")
    if isinstance(parts, list):
        return max((_leading(part, bos) for part in parts if isinstance(part, dict)), default=0)
    single = processor.get("single")
    count = 0
    for item in single if isinstance(single, list) else ():
        special = item.get("SpecialToken") if isinstance(item, dict) else None
        if not isinstance(special, dict) or special.get("id") != bos:
            break
        count += 1
    return count


def leading_count(text: str, bos: str) -> int:
    """How many BOS tokens a prompt begins with."""
    count = 0
    rest = text.lstrip()
    while bos and rest.startswith(bos):
        count += 1
        rest = rest[len(bos) :].lstrip()
    return count


def needed_bos(home: Sequence[Family], bos: str | None, texts: frozenset[str], template: str) -> str | None:
    """The BOS without which the model was never trained, as far as its vocabulary tells; None if it does not tell.

    `<s>` says less: Phi-3 has it and goes without. With `[INST]` in the template it is Llama 2's or Mistral's, and
    needed.
    """
    if bos in OWN_TEXTS:
        return bos
    if bos == "<s>" and "[INST]" in template:
        return bos
    if bos is None:
        return next((text for family in home for text in family.roles["bos"] if text in OWN_TEXTS & texts), None)
    return None
