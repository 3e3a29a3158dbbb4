"""Evidence about text: the tokenizer, what other files say about its tokens, and the chat templates."""

from __future__ import annotations

from collections.abc import Mapping

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import EvidenceMissing
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.tokenizer.chat_template import ChatTemplate, read_chat_templates
from degarble.tokenizer.gguf_vocabulary import read_gguf_vocabulary
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.token_claims import TokenClaim, read_token_claims


@provides("tokenizer")
def tokenizer(source: Source, gguf: GgufFile | None = None) -> Tokenizer:
    """The tokenizer that a loader would use: a GGUF file's own, else tokenizer.json, else sentencepiece."""
    return load_tokenizer(source) if gguf is None else read_gguf_vocabulary(gguf.metadata, gguf.file)


@provides("token_claims")
def token_claims(json_files: Mapping[str, JsonFile], gguf: GgufFile | None = None) -> tuple[TokenClaim, ...]:
    """What the files beside the tokenizer say about single tokens."""
    return read_token_claims(json_files, gguf.file if gguf else "", gguf.metadata if gguf else {})


@provides("chat_templates")
def chat_templates(
    source: Source, json_files: Mapping[str, JsonFile], gguf: GgufFile | None = None
) -> tuple[ChatTemplate, ...]:
    """Every chat template, the preferred one first. Raises EvidenceMissing if there is none."""
    found = read_chat_templates(source, json_files, gguf.file if gguf else "", gguf.metadata if gguf else {})
    if not found:
        raise EvidenceMissing("no chat template")
    return found


@provides("embedding_rows")
def embedding_rows(modules: Modules) -> int:
    """Rows of the token embedding as stored: ids from here on have no vector."""
    for example, _ in modules.classes():
        if example.canonical == "model.embed_tokens" and example.form.shape:
            return int(example.form.shape[0])
    raise EvidenceMissing("no token embedding among the tensors")
