"""`tokenizer.json` of Hugging Face's tokenizers library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from degarble.checkpoint.interface import MAX_SMALL_FILE_BYTES, Source
from degarble.errors import EvidenceUnjudged, MalformedFile
from degarble.tokenizer.bulk_table import bulk_pieces
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.decoder_pipeline import Pipeline, read_pipeline
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.merges import Merges
from degarble.tokenizer.vocabulary import MAX_PROBLEMS, MAX_TOKEN_IDS, by_id


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool = False
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class _Model(msgspec.Struct):
    """The merges stay JSON on purpose: decoding does not need them, and they are most of the file."""

    vocab: Any = None
    merges: msgspec.Raw = msgspec.Raw(b"[]")
    dropout: Any = None
    fuse_unk: Any = None
    type: str | None = None
    byte_fallback: bool = False
    ignore_merges: bool = False
    unk_token: str | None = None
    unk_id: int | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None


class _File(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []
    decoder: dict[str, Any] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None
    truncation: Any = None
    padding: Any = None


def read_tokenizer_json(source: Source, file: str, declared: Mapping[str, Mapping[str, str]]) -> Tokenizer:
    """Read one. Raises MalformedFile, or EvidenceUnjudged for a model or decoder that no table can express."""
    if source.files()[file] > MAX_SMALL_FILE_BYTES:
        raise MalformedFile(file, "size", f"at most {MAX_SMALL_FILE_BYTES} bytes", f"{source.files()[file]} bytes")
    raw = source.read(file)
    try:
        stored = msgspec.json.decode(raw, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFile(file, "byte 0", "a tokenizer in JSON", str(error)) from None
    pieces, problems = _pieces(stored.model, file)
    pieces += [None] * (_reach(stored.added_tokens, file) - len(pieces))
    added: dict[int, AddedToken] = {}
    for token in stored.added_tokens:
        taken = pieces[token.id]
        if taken not in (None, token.content) and len(problems) < MAX_PROBLEMS:
            problems.append(
                f"{file}: added_tokens: id {token.id} is {taken!r} in the vocabulary, {token.content!r} here"
            )
        pieces[token.id] = token.content
        added[token.id] = AddedToken(
            token_id=token.id,
            content=token.content,
            special=token.special,
            normalized=token.normalized,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            single_word=token.single_word,
        )
    problems += _renumbered(stored, file)[: MAX_PROBLEMS - len(problems)]
    pipeline = read_pipeline(stored.decoder, file)
    verbatim = frozenset(added) if pipeline.kind == "byte-level" else frozenset()
    return Tokenizer(
        file=file,
        kind=pipeline.kind,
        pieces=pieces,
        added_tokens=added,
        build_table=lambda: _table(pipeline, stored.decoder, pieces, verbatim),
        pipeline=_parts(stored),
        declared=declared,
        problems=tuple(problems),
        raw=raw,
        merges=Merges(bytes(stored.model.merges)),
    )


def _table(
    pipeline: Pipeline, decoder: dict[str, Any] | None, pieces: list[str | None], verbatim: frozenset[int]
) -> ByteTable:
    found = None if pipeline.first_differs else bulk_pieces(pieces, decoder, verbatim)
    return pipeline.table(pieces, verbatim) if found is None else ByteTable(pieces=found, strip=pipeline.strip)


def _pieces(model: _Model, file: str) -> tuple[list[str | None], list[str]]:
    """Laid out by id. Nearly every file lists its pieces in that order, which is seen without a loop."""
    vocab = model.vocab
    if isinstance(vocab, dict) and _is_counted(vocab) and len(vocab) <= MAX_TOKEN_IDS:
        return list(vocab), []
    return by_id(_entries(model, file), file, "model.vocab")


def _is_counted(vocab: Mapping[str, Any]) -> bool:
    """Whether the ids are 0, 1, 2 …; `true` and 1.0 are no ids."""
    return set(map(type, vocab.values())) <= {int} and list(vocab.values()) == list(range(len(vocab)))


def _entries(model: _Model, file: str) -> list[tuple[str, object]]:
    vocab = model.vocab
    if isinstance(vocab, dict):
        return list(vocab.items())
    if isinstance(vocab, list):  # Unigram: [piece, score] in the order of ids
        if all(isinstance(row, list) and row and isinstance(row[0], str) for row in vocab):
            return [(row[0], at) for at, row in enumerate(vocab)]
        raise MalformedFile(file, "model.vocab", "pairs of piece and score", "other values")
    raise EvidenceUnjudged(f"{file}: model {model.type!r} has no vocabulary that is known")


def _reach(added: list[_Added], file: str) -> int:
    return len(by_id(((token.content, token.id) for token in added), file, "added_tokens")[0])


def _renumbered(stored: _File, file: str) -> list[str]:
    """Added tokens whose ids the tokenizers library ignores: it counts on from the highest it has."""
    vocab = stored.model.vocab
    size = len(vocab)
    known = vocab if isinstance(vocab, dict) else {row[0] for row in vocab}
    ids: list[int] = []
    found: list[str] = []
    for token in stored.added_tokens:
        if token.content in known:
            continue
        given = max([size, *(at + 1 for at in ids[-1:])])
        ids.append(given)
        if given != token.id:
            found.append(
                f"{file}: added_tokens: {token.content!r} has id {token.id}; the tokenizers library gives {given}"
            )
    return found


def _parts(stored: _File) -> Mapping[str, Any]:
    model = stored.model
    return {
        "normalizer": stored.normalizer,
        "pre_tokenizer": stored.pre_tokenizer,
        "post_processor": stored.post_processor,
        "decoder": stored.decoder,
        "model": {
            "type": model.type,
            "byte_fallback": model.byte_fallback,
            "ignore_merges": model.ignore_merges,
            "unk_token": model.unk_token,
            "unk_id": model.unk_id,
            "continuing_subword_prefix": model.continuing_subword_prefix,
            "end_of_word_suffix": model.end_of_word_suffix,
            "dropout": model.dropout,
            "fuse_unk": model.fuse_unk,
        },
        "truncation": stored.truncation,
        "padding": stored.padding,
    }
