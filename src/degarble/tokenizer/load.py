"""One tokenizer out of a checkpoint: `tokenizer.json`, `tokenizer.model`, or the metadata of a GGUF file."""

from __future__ import annotations

import os
from pathlib import Path

from degarble.checkpoint.gguf import read_gguf
from degarble.checkpoint.interface import Source
from degarble.errors import EvidenceMissing
from degarble.target import open_target
from degarble.tokenizer.gguf_vocabulary import read_gguf_vocabulary
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.sentencepiece_model import read_sentencepiece
from degarble.tokenizer.special_tokens import read_declared
from degarble.tokenizer.tokenizer_json import read_tokenizer_json

JSON_FILE = "tokenizer.json"
SENTENCEPIECE_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


def load_tokenizer(target: str | os.PathLike[str] | Source) -> Tokenizer:
    """Read the tokenizer that a loader would use: tokenizer.json first, then sentencepiece, then GGUF.

    Takes a checkpoint, or one file of these. Raises EvidenceMissing if there is none, EvidenceUnjudged if its decoder
    cannot be expressed as a table, MalformedFile if the file breaks its own format.
    """
    source, only = (target, None) if isinstance(target, Source) else _open(target)
    files = source.files()
    for file in (JSON_FILE, *SENTENCEPIECE_FILES):
        if file in files and only in (None, file):
            read = read_tokenizer_json if file == JSON_FILE else read_sentencepiece
            return read(source, file, read_declared(source))
    for file in sorted(files):
        if file.endswith(".gguf") and only in (None, file) and "mmproj" not in file.lower():
            return read_gguf_vocabulary(read_gguf(source, file).metadata, file)
    names = ", ".join((JSON_FILE, *SENTENCEPIECE_FILES))
    raise EvidenceMissing(f"{source.path}: no tokenizer: none of {names}, and no .gguf file")


def _open(target: str | os.PathLike[str]) -> tuple[Source, str | None]:
    path = Path(target)
    if path.name in (JSON_FILE, *SENTENCEPIECE_FILES) and path.is_file():
        return open_target(path.parent), path.name
    return open_target(target), None
