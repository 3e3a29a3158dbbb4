"""One pass over the bytes: every stored tensor to its TensorProfile, in units of about 32 MB of one file.

A unit is read front to back into one buffer of a chunk's size, so memory stays bounded, a failing disk is an error of
one tensor rather than a killed process (as a memory map would be), and big tensors are shared between threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import BinaryIO

import msgspec
import numpy as np

from degarble.checkpoint.interface import Source, TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.executor import Executor, Progress, Unit
from degarble.profile.float_bits import float_bits
from degarble.profile.float_rows import profile_floats
from degarble.profile.gguf_rows import profile_blocks
from degarble.profile.lines import CHUNK_BYTES, Chunk, Layout, block_type, layout_of, stored_bytes
from degarble.profile.tensor_profile import TensorProfile
from degarble.profile.word_rows import profile_words

UNIT_BYTES = 32 << 20
SMALL_BYTES = 1 << 20
"""Tensors up to this size are profiled together with others of their shape, a chunk's bytes at a time."""
DETAILED_BYTES = 1 << 17
"""Payloads up to this size are looked at closely too: norms and biases are payloads of their modules."""
SAMPLED_SHARE = 16
"""With --sample, one chunk of so many is read."""


class Piece(msgspec.Struct, frozen=True):
    """Bytes [start, stop) of one tensor."""

    info: TensorInfo
    layout: Layout
    start: int
    stop: int
    is_detailed: bool


class RawResult(msgspec.Struct, frozen=True):
    """What one unit found."""

    profiles: dict[str, TensorProfile]
    unread: dict[str, str]
    """Tensor -> why it could not be read."""

    def merge(self, other: RawResult) -> RawResult:
        """Results of two units."""
        for name, profile in other.profiles.items():
            known = self.profiles.get(name)
            self.profiles[name] = profile if known is None else known.merge(profile)
        self.unread.update(other.unread)
        return self


def profile_tensors(
    source: Source,
    tensors: Mapping[str, TensorInfo],
    executor: Executor,
    *,
    is_payload: Callable[[str], bool] = lambda name: True,
    is_sampled: bool = False,
    progress: Progress | None = None,
) -> RawResult:
    """Profile all tensors. Those whose bytes cannot be trusted (wrong size, unknown dtype) are in `unread`."""
    result = RawResult({}, {})
    pieces: list[Piece] = []
    sizes = source.files()
    for info in tensors.values():
        if (reason := _unreadable(info, sizes)) is not None:
            result.unread[info.name] = reason
        elif info.nbytes:
            pieces += _pieces(info, is_detailed=info.nbytes <= DETAILED_BYTES or not is_payload(info.name))
    units = [
        Unit(sum(piece.stop - piece.start for piece in group), _Scan(source, group, is_sampled))
        for group in _units(pieces)
    ]
    for part in executor.run(units, progress):
        result.merge(part)
    for name in result.unread:
        result.profiles.pop(name, None)
    return result


def _unreadable(info: TensorInfo, sizes: Mapping[str, int]) -> str | None:
    expected = stored_bytes(info.dtype, info.shape)
    if expected is None:
        return f"{info.dtype} {list(info.shape)} has no known size"
    if expected != info.nbytes:
        return f"{info.dtype} {list(info.shape)} needs {expected} bytes, its header gives {info.nbytes}"
    if info.end > sizes.get(info.file, 0):
        return f"{info.file} ends before byte {info.end}"
    return None


def _pieces(info: TensorInfo, *, is_detailed: bool) -> Iterator[Piece]:
    layout = _layout(info.dtype, info.shape, info.nbytes)
    step = max(1, UNIT_BYTES // layout.chunk_bytes) * layout.chunk_bytes
    for start in range(0, info.nbytes, step):
        yield Piece(info, layout, start, min(start + step, info.nbytes), is_detailed)


@lru_cache(maxsize=4096)
def _layout(dtype: str, shape: tuple[int, ...], nbytes: int) -> Layout:
    kind, bits = block_type(dtype), float_bits(dtype)
    return layout_of(shape, nbytes, kind.type_size if kind else bits.unsigned.itemsize if bits else 1)


def _units(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Neighbours in a file, up to a unit's bytes."""
    group: list[Piece] = []
    size = 0
    for piece in sorted(pieces, key=lambda piece: (piece.info.file, piece.info.start + piece.start)):
        length = piece.stop - piece.start
        if group and (group[0].info.file != piece.info.file or size + length > UNIT_BYTES):
            yield group
            group, size = [], 0
        group.append(piece)
        size += length
    if group:
        yield group


class _Scan:
    """The work of one unit."""

    def __init__(self, source: Source, pieces: Sequence[Piece], is_sampled: bool) -> None:
        self._source, self._pieces, self._is_sampled = source, pieces, is_sampled

    def __call__(self) -> RawResult:
        self._scratch = np.empty(0, np.uint8)
        result = RawResult({}, {})
        small: dict[object, list[Piece]] = {}
        with RangeReader(self._source, self._pieces[0].info.file) as reader:
            for piece in self._pieces:
                info = piece.info
                if info.nbytes <= SMALL_BYTES:
                    small.setdefault((info.dtype, info.shape, piece.is_detailed), []).append(piece)
                else:
                    self._collect(result, [piece], self._large(reader, piece))
            for group in small.values():
                most = max(1, CHUNK_BYTES // group[0].info.nbytes)
                for at in range(0, len(group), most):
                    some = group[at : at + most]
                    self._collect(result, some, self._small(reader, some))
        return result

    @staticmethod
    def _collect(result: RawResult, pieces: Sequence[Piece], profiles: Iterator[list[TensorProfile]]) -> None:
        try:
            for parts in profiles:
                result.merge(RawResult({part.name: part for part in parts}, {}))
        except OSError as error:
            result.unread.update({piece.info.name: str(error) for piece in pieces})

    def _large(self, reader: RangeReader, piece: Piece) -> Iterator[list[TensorProfile]]:
        layout, step = piece.layout, piece.layout.chunk_bytes
        buffer = np.empty(min(step, piece.stop - piece.start), np.uint8)
        stride = step * SAMPLED_SHARE if self._is_sampled else step
        for start in range(piece.start, piece.stop, stride):
            part = buffer[: min(step, piece.stop - start)]
            reader.fill(part, piece.info.start + start)
            whole = part.size - part.size % layout.line_bytes
            for at, raw in ((0, part[:whole]), (whole, part[whole:])):
                if raw.size:
                    yield self._judge([piece], raw.reshape(1, -1, min(layout.line_bytes, raw.size)), start + at)

    def _small(self, reader: RangeReader, pieces: Sequence[Piece]) -> Iterator[list[TensorProfile]]:
        """Tensors of one shape, each whole."""
        nbytes, layout = pieces[0].info.nbytes, pieces[0].layout
        buffer = np.empty((len(pieces), nbytes), np.uint8)
        for row, piece in zip(buffer, pieces, strict=True):
            reader.fill(row, piece.info.start)
        whole = nbytes - nbytes % layout.line_bytes
        for at, raw in ((0, buffer[:, :whole]), (whole, buffer[:, whole:])):
            if raw.size:
                lines = np.ascontiguousarray(raw).reshape(len(pieces), -1, min(layout.line_bytes, raw.shape[1]))
                yield self._judge(pieces, lines, at)

    def _judge(self, pieces: Sequence[Piece], raw: Array, start: int) -> list[TensorProfile]:
        piece = pieces[0]
        chunk = Chunk([one.info for one in pieces], raw, start, piece.layout.lines_per_row, piece.is_detailed)
        return judge(chunk, self._room(raw.size))

    def _room(self, size: int) -> Array:
        if self._scratch.size < size:
            self._scratch = np.empty(size, np.uint8)
        return self._scratch


def judge(chunk: Chunk, scratch: Array | None = None) -> list[TensorProfile]:
    """The kernel of the chunk's dtype."""
    dtype = chunk.tensors[0].dtype
    bits = float_bits(dtype)
    if bits is not None:
        return profile_floats(chunk, bits, scratch)
    return profile_blocks(chunk) if block_type(dtype) is not None else profile_words(chunk)


class RangeReader:
    """Reads ranges of one file into buffers; unbuffered for local files, through the source for others."""

    def __init__(self, source: Source, file: str) -> None:
        self._source, self._file = source, file
        self._stream: BinaryIO | None = None

    def __enter__(self) -> RangeReader:
        path = getattr(self._source, "local_path", None)
        if path is not None:
            self._stream = open(path(self._file), "rb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def fill(self, buffer: Array, start: int) -> None:
        """Fill the buffer with the bytes from `start` on. Raises OSError if the file ends before."""
        view = memoryview(buffer)  # type: ignore[arg-type]  # an array is a buffer
        done = 0
        if self._stream is None:
            data = self._source.read(self._file, start, len(view))
            view[: len(data)] = data
            done = len(data)
        else:
            self._stream.seek(start)
            while done < len(view) and (more := self._stream.readinto(view[done:])):  # type: ignore[attr-defined]
                done += more
        if done < len(view):
            raise OSError(f"{self._file}: {len(view) - done} bytes missing from byte {start + done} on")
