"""Ids to text while they arrive: every character as soon as its last byte is there, and never a wrong one.

The idea: a sequence *is* a byte string, the bytes of its ids joined, so a stream has to remember at most three bytes
of an unfinished character and whether the text has begun. Nothing is decoded twice, nothing is taken back, and no
U+FFFD is ever looked for: a model may write one, and then it is text.

What follows from it: the deltas of any grouping of the ids join to the same text; that text is
`table.join(ids).decode("utf-8", "replace")`; a delta never ends inside a character. The library's own decode differs
for byte-fallback vocabularies, where it turns a whole run of byte tokens into U+FFFD if one byte of it is wrong,
taking back characters that a stream has already sent.

Cost: what an id does depends only on the unfinished bytes before it, so streams walk an automaton that they share and
that grows as it is used: state and id give text and next state, one dictionary look-up a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from degarble.errors import UsageError
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.special_tokens import SKIP, SpecialTokenPolicy
from degarble.tokenizer.utf8 import MAX_PENDING_BYTES, REPLACEMENT_CHAR, decode_available, decode_available_reference

MAX_REMEMBERED_STEPS = 1 << 18
"""Steps of the automaton that are kept, some 150 bytes each; those beyond are worked out every time."""

WithoutText = Literal["drop", "replace", "raise"]
"""What an id adds that has no string: nothing, one U+FFFD, or an end with UsageError. It is counted in any case."""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """All that a stream knows, small enough to travel: another server can go on in the middle of a character."""

    pending: bytes = b""
    """Bytes of an unfinished character."""
    begun: bool = False
    """Whether a first token was seen."""
    strip: int = 0
    """Spaces that are still dropped if they come next."""


class Detokenizer:
    """A tokenizer's table with one policy applied; shared by any number of streams."""

    def __init__(
        self,
        tokenizer: Tokenizer | ByteTable,
        *,
        special: SpecialTokenPolicy = SKIP,
        without_text: WithoutText = "drop",
    ) -> None:
        if isinstance(tokenizer, ByteTable):
            self.table, self.hidden = tokenizer, frozenset[int]()
        else:
            self.table, self.hidden = tokenizer.table, special.hidden_ids(tokenizer)
        self.without_text = without_text
        self._places: dict[StreamState, Place] = {}
        self._num_steps = 0

    def stream(self, after: Iterable[int] = (), *, state: StreamState | None = None) -> TextStream:
        """Start one stream: fresh, after the ids of a prompt (whose text is not repeated), or from a saved state."""
        if state is not None and (len(state.pending) > MAX_PENDING_BYTES or not 0 <= state.strip <= self.table.strip):
            raise UsageError(f"a stream state of another tokenizer, or damaged: {state}")
        stream = TextStream(self, self.place(state or StreamState(strip=self.table.strip)))
        stream.push_many(after)
        return stream

    def decode(self, token_ids: Iterable[int]) -> str:
        """A whole sequence at once; the same text that any stream of it gives."""
        stream = self.stream()
        return stream.push_many(token_ids) + stream.finish()

    def place(self, state: StreamState) -> Place:
        """Where a stream in this state stands in the automaton."""
        return self._places.setdefault(state, Place(state))

    def step(self, place: Place, token_id: int) -> tuple[str, Place] | None:
        """What an id does at a place, remembered for the next time. None: the id has no string."""
        if token_id in self.hidden:
            step = "", place
        else:
            piece = self.table.bytes_of(token_id)
            if piece is None:
                return None
            text, state = self._advance(place.state, token_id, piece)
            step = text, self.place(state)
        if self._num_steps < MAX_REMEMBERED_STEPS:
            self._num_steps += 1
            place[token_id] = step
        return step

    def _advance(self, state: StreamState, token_id: int, piece: bytes) -> tuple[str, StreamState]:
        strip = state.strip
        if not state.begun and self.table.opening is not None:
            opening = self.table.opening(token_id)
            piece = piece if opening is None else opening
        if strip:
            dropped = min(len(piece) - len(piece.lstrip(b" ")), strip)
            strip = strip - dropped if dropped == len(piece) else 0
            piece = piece[dropped:]
        text, pending = decode_available(state.pending + piece)
        return text, StreamState(pending=pending, begun=True, strip=strip)


class Place(dict[int, tuple[str, "Place"]]):
    """One state of the automaton: id -> text and next place, as far as they were asked for."""

    def __init__(self, state: StreamState) -> None:
        super().__init__()
        self.state = state


class TextStream:
    """The text of one growing sequence."""

    __slots__ = ("_detokenizer", "_place", "num_without_text")

    def __init__(self, detokenizer: Detokenizer, place: Place) -> None:
        self._detokenizer = detokenizer
        self._place = place
        self.num_without_text = 0
        """Ids so far that have no string: out of range, or padding rows of the embedding that were sampled."""

    def push(self, token_id: int) -> str:
        """Take one id; return the text that is certain now, often exactly the token, sometimes nothing."""
        try:
            text, self._place = self._place[token_id]
        except KeyError:
            return self._push_new(token_id)
        return text

    def push_many(self, token_ids: Iterable[int]) -> str:
        """Take the ids of one step, as speculative decoding delivers them."""
        return "".join([self.push(token_id) for token_id in token_ids])

    def finish(self) -> str:
        """End the text: what is left of an unfinished character becomes U+FFFD."""
        state = self._place.state
        self._place = self._detokenizer.place(StreamState(begun=True))
        return decode_available(state.pending, final=True)[0]

    @property
    def num_pending_bytes(self) -> int:
        """Bytes of an unfinished character, 0 to 3."""
        return len(self._place.state.pending)

    def state(self) -> StreamState:
        """What another process needs to go on with this stream."""
        return self._place.state

    def _push_new(self, token_id: int) -> str:
        step = self._detokenizer.step(self._place, token_id)
        if step is not None:
            text, self._place = step
            return text
        self.num_without_text += 1
        policy = self._detokenizer.without_text
        if policy == "raise":
            raise UsageError(f"id {token_id} has no string: ids end at {len(self._detokenizer.table.pieces) - 1}")
        return "" if policy == "drop" else self.finish() + REPLACEMENT_CHAR


class StreamBatch:
    """Many sequences that advance together and come and go, as in continuous batching."""

    def __init__(self, detokenizer: Detokenizer) -> None:
        self._detokenizer = detokenizer
        self._streams: dict[object, TextStream] = {}
        self._pushes: dict[object, Callable[[int], str]] = {}

    def open(self, key: object, after: Iterable[int] = (), *, state: StreamState | None = None) -> None:
        """Add a sequence under a key of the caller's."""
        if key in self._streams:
            raise UsageError(f"a stream {key!r} is open already")
        stream = self._streams[key] = self._detokenizer.stream(after, state=state)
        self._pushes[key] = stream.push

    def step(self, keys: Sequence[object], token_ids: Sequence[int]) -> list[str]:
        """One id for each of these sequences; their deltas in the same order."""
        pushes = self._pushes
        return [pushes[key](token_id) for key, token_id in zip(keys, token_ids, strict=True)]

    def step_many(self, token_ids: Mapping[object, Sequence[int]]) -> dict[object, str]:
        """Any number of ids for each of these sequences."""
        return {key: self._streams[key].push_many(ids) for key, ids in token_ids.items()}

    def close(self, key: object) -> str:
        """Take a sequence out; returns the rest of its text."""
        del self._pushes[key]
        return self._streams.pop(key).finish()

    def state(self, key: object) -> StreamState:
        """What another process needs to go on with one sequence."""
        return self._streams[key].state()


def detokenize_reference(table: ByteTable, token_ids: Iterable[int], hidden: frozenset[int] = frozenset()) -> list[str]:
    """The slow, obvious twin: after each id, the longest certain text of the whole byte string so far."""
    deltas: list[str] = []
    seen: list[int] = []
    sent = ""
    for token_id in token_ids:
        seen.append(token_id)
        text, _ = decode_available_reference(table.join(seen, hidden))
        deltas.append(text[len(sent) :])
        sent = text
    rest, _ = decode_available_reference(table.join(seen, hidden), final=True)
    return [*deltas, rest[len(sent) :]]
