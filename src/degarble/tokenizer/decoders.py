"""Ways to turn ids into a stream of text, ours and others', behind one call, so that they can be compared.

A decoder takes all ids and returns one piece of text for each, and what came after the last one. Those of other
libraries are imported when they are asked for; `module:function` is a user's own.
"""

from __future__ import annotations

import importlib
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from degarble.errors import EvidenceUnjudged, MissingExtra, UsageError
from degarble.tokenizer.detokenize import Detokenizer
from degarble.tokenizer.encode import library_tokenizer
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.special_tokens import KEEP

Decoder = Callable[[Sequence[int]], list[str]]
"""Ids -> deltas; special tokens are shown."""


def open_decoder(name: str, tokenizer: Tokenizer, folder: str) -> Decoder:
    """A decoder by name or as `module:function`. Raises UsageError, MissingExtra or EvidenceUnjudged."""
    if ":" in name:
        return _own(name)
    if name not in DECODERS:
        raise UsageError(f"decoder {name!r}: one of {', '.join(DECODERS)}, or module:function")
    return DECODERS[name](tokenizer, folder)


def _exact(tokenizer: Tokenizer, folder: str) -> Decoder:
    detokenizer = Detokenizer(tokenizer, special=KEEP)

    def decode(token_ids: Sequence[int]) -> list[str]:
        stream = detokenizer.stream()
        return [*map(stream.push, token_ids), stream.finish()]

    return decode


def _naive(tokenizer: Tokenizer, folder: str) -> Decoder:
    """Each id alone, as code does that calls `decode([token_id])`."""
    table = tokenizer.table
    return lambda token_ids: [table.join([at]).decode("utf-8", "replace") for at in token_ids]


def _decode_stream(tokenizer: Tokenizer, folder: str) -> Decoder:
    if not tokenizer.file.endswith(".json"):
        raise EvidenceUnjudged(f"{tokenizer.file}: the tokenizers library reads tokenizer.json only")
    from tokenizers.decoders import DecodeStream

    library = library_tokenizer(tokenizer)

    def decode(token_ids: Sequence[int]) -> list[str]:
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(library, at) or "" for at in token_ids]

    return decode


def _whole(tokenizer: Tokenizer, folder: str) -> Decoder:
    if not tokenizer.file.endswith(".json"):
        raise EvidenceUnjudged(f"{tokenizer.file}: the tokenizers library reads tokenizer.json only")
    library = library_tokenizer(tokenizer)
    return lambda token_ids: [library.decode(list(token_ids), skip_special_tokens=False)]


def _transformers(tokenizer: Tokenizer, folder: str) -> Decoder:
    """The streamer of transformers, through its own loading of the folder."""
    library = _import("transformers")
    loaded = library.AutoTokenizer.from_pretrained(folder)

    def decode(token_ids: Sequence[int]) -> list[str]:
        streamer = library.TextIteratorStreamer(loaded, skip_special_tokens=False)
        deltas = [_put(streamer, [at]) for at in token_ids]
        streamer.end()
        return [*deltas, _drain(streamer)]

    return decode


def _put(streamer: Any, token_ids: list[int]) -> str:
    numpy = importlib.import_module("numpy")
    streamer.put(numpy.asarray(token_ids))
    return _drain(streamer)


def _drain(streamer: Any) -> str:
    parts: list[str] = []
    while True:
        try:
            part = streamer.text_queue.get_nowait()
        except queue.Empty:
            return "".join(parts)
        parts.append(part or "")


def _own(name: str) -> Decoder:
    module, _, function = name.partition(":")
    call = getattr(_import(module), function, None)
    if not callable(call):
        raise UsageError(f"{module} has no function {function!r}")

    def decode(token_ids: Sequence[int]) -> list[str]:
        deltas: str | Iterable[str] = call(list(token_ids))
        return [deltas] if isinstance(deltas, str) else list(deltas)

    return decode


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None


DECODERS: Mapping[str, Callable[[Tokenizer, str], Decoder]] = {
    "exact": _exact,
    "naive": _naive,
    "decode-stream": _decode_stream,
    "whole": _whole,
    "transformers": _transformers,
}
"""exact: ours; naive: each id alone; decode-stream, whole: tokenizers; transformers: its streamer."""
