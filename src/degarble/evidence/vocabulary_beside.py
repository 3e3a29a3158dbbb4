"""Evidence about further vocabularies in the folder: another loader reads them, and they have to say the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from degarble.checkpoint.interface import MAX_SMALL_FILE_BYTES, Source
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import EvidenceMissing, MalformedFile, TargetError
from degarble.evidence.store import provides
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import JSON_FILE
from degarble.tokenizer.sentencepiece_pieces import read_texts
from degarble.tokenizer.tokenizer_json import read_tokenizer_json

SENTENCEPIECE_FILE = "tokenizer.model"
"""The other names belong to models whose loaders shift every id by one."""
VOCAB_FILE = "vocab.json"


@dataclass(frozen=True, kw_only=True)
class VocabularyBeside:
    """One of them."""

    file: str
    ids: Mapping[str, int] = field(repr=False)

    def pieces(self) -> list[str | None]:
        """Laid out by id; ids far past the number of pieces are left out."""
        laid: list[str | None] = [None] * (2 * len(self.ids) + 1)
        for text, at in self.ids.items():
            if 0 <= at < len(laid):
                laid[at] = text
        return laid


@provides("vocabularies_beside")
def vocabularies_beside(
    source: Source, tokenizer: Tokenizer, json_files: Mapping[str, JsonFile]
) -> tuple[VocabularyBeside, ...]:
    """Those that can be read; a broken one is left to the rules on files."""
    found: list[VocabularyBeside] = []
    for file, read in ((JSON_FILE, _of_json), (SENTENCEPIECE_FILE, _of_sentencepiece)):
        if file in source.files() and file != tokenizer.file and source.files()[file] <= MAX_SMALL_FILE_BYTES:
            try:
                found.append(VocabularyBeside(file=file, ids=dict(read(source, file))))
            except (MalformedFile, TargetError, EvidenceMissing):
                continue
    stored = json_files[VOCAB_FILE].value if VOCAB_FILE in json_files else None
    if isinstance(stored, dict):
        ids = {text: at for text, at in stored.items() if type(at) is int}
        found.append(VocabularyBeside(file=VOCAB_FILE, ids=ids))
    return tuple(found)


def _of_json(source: Source, file: str) -> Iterator[tuple[str, int]]:
    yield from read_tokenizer_json(source, file, {}).ids_by_piece.items()


def _of_sentencepiece(source: Source, file: str) -> Iterator[tuple[str, int]]:
    yield from zip(read_texts(source.read(file), file), itertools.count())
