"""From paths to one source: the trace schema, a foreign format, or a trace with profiles beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from degarble.errors import TargetError, UsageError
from degarble.trace.event import KINDS
from degarble.trace.replay import Verdict
from degarble.trace.source import TraceSource
from degarble.trace_readers.interface import HEAD_BYTES, TraceReader, reader_named, readers


class ForeignSource(TraceSource):
    """Files of one foreign format."""

    def __init__(self, paths: Sequence[str], reader: TraceReader) -> None:
        super().__init__(paths)
        self.reader = reader

    @cached_property
    def verdict(self) -> Verdict:
        """What the reader found. Raises TargetError if a file cannot be read."""
        return self.reader.read_all(self.paths)


class ProfiledSource(TraceSource):
    """Traces of a run, and profiles of the same run."""

    def __init__(self, paths: Sequence[str], profiles: Sequence[tuple[str, TraceReader]]) -> None:
        super().__init__(paths)
        self.profiles = list(profiles)

    @cached_property
    def verdict(self) -> Verdict:
        """The trace's verdict, with what the profiles show of its steps. Raises TargetError as its parts do."""
        from degarble.trace_readers.profile_join import join

        return join(super().verdict, self.paths, [(path, reader.read(path)) for path, reader in self.profiles])


def recognised(path: str) -> TraceReader | None:
    """The reader of a file; None for the trace schema, and for what nobody knows. Raises TargetError if it is not there."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror or error}") from None
    if _is_native(head):
        return None
    return next((reader for reader in readers().values() if reader.recognises(head, path)), None)


def _is_native(head: bytes) -> bool:
    """Whether the first line is an event of the trace schema; a line longer than the head is judged by its beginning."""
    line = head.lstrip().split(b"\n", 1)[0]
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return line[:1] == b"{" and b'"ev"' in line[:200]
    return isinstance(value, dict) and str(value.get("ev")) in KINDS and "observer" not in value


def open_trace(paths: Sequence[str], form: str | None = None) -> TraceSource:
    """Open what the user named; `form` is the name of a format, or None to recognise each file by its content.

    Raises TargetError for a file that cannot be read, UsageError for files that say nothing of each other.
    """
    if not paths:
        raise UsageError("no trace file given")
    found = [(path, reader_named(form) if form else recognised(path)) for path in paths]
    foreign = {reader.name: reader for _, reader in found if reader is not None}
    native = [path for path, reader in found if reader is None]
    if not foreign:
        return TraceSource(native)
    profiles = [(path, reader) for path, reader in found if reader is not None and reader.is_profile]
    if native and len(native) + len(profiles) == len(found):
        return ProfiledSource(native, profiles)
    if len(foreign) > 1 or native:
        told = ", ".join(f"{path} ({reader.title if reader else 'a trace'})" for path, reader in found[:6])
        raise UsageError(f"these files cannot be read together: {told}")
    (reader,) = foreign.values()
    return ForeignSource(paths, reader)
