"""A server-sent stream of chunks, read as strictly as a careful client would: every breach with its line.

The form: lines end in LF or CRLF; an event is one or more lines `data: …` and an empty line behind them; lines that begin
with a colon are comments. Each event is one chunk of JSON, the last one `[DONE]`. After a finish reason come no more text
and at most a chunk without choices, which tells the usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from degarble.errors import DegarbleError
from degarble.probe import reading
from degarble.probe.exchange import Answer, Breach, Kind, Score, Stream

MAX_BREACHES = 20
DONE = "[DONE]"
FIELDS = ("data", "event", "id", "retry")


class EndpointGaveUp(DegarbleError):
    """The stream holds an error event: the endpoint says itself that there is no answer."""


class Event(msgspec.Struct, frozen=True):
    """One event, and the line it begins in."""

    line: int
    data: str


def read_stream(body: bytes, kind: Kind, content_type: str) -> tuple[Answer, Stream]:
    """The answer and the form of a whole stream. Raises EndpointGaveUp for an error event."""
    reader = _Reader(kind)
    if content_type.partition(";")[0].strip().lower() != "text/event-stream":
        reader.breach("content type", 1, "text/event-stream", content_type[:60] or "none")
    for event in _events(body, reader):
        reader.take(event)
    return reader.answer, reader.stream


def _events(body: bytes, reader: _Reader) -> Iterator[Event]:
    """Events in order; what stands outside of any is a breach."""
    data: list[str] = []
    begin = 0
    lines = body.split(b"\n")
    for number, raw in enumerate(lines, start=1):
        line = reader.decoded(raw.removesuffix(b"\r"), number)
        if not line:
            if data:
                yield Event(begin, "\n".join(data))
            data = []
            continue
        field, _, value = line.partition(":")
        if field == "data":
            begin = begin if data else number
            data.append(value.removeprefix(" "))
        elif field and field not in FIELDS:
            reader.breach("line outside of an event", number, "data: …", line[:60])
    if data:
        reader.breach("stream ends inside an event", begin, "an empty line behind the data", data[-1][:60])
        yield Event(begin, "\n".join(data))


class _Reader:
    """Puts an answer together and notes what is wrong on the way."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._parts: dict[str, list[str]] = {"text": [], "reasoning": []}
        self._scores: list[Score] = []
        self._ids: list[int] = []
        self._told: dict[str, Any] = {}
        self._finish: str | None = None
        self._id: str | None = None
        self._breaches: list[Breach] = []
        self._num_chunks = 0
        self._has_done = False

    @property
    def answer(self) -> Answer:
        """What came so far."""
        return Answer(
            text="".join(self._parts["text"]),
            reasoning="".join(self._parts["reasoning"]),
            finish_reason=self._finish,
            scores=tuple(self._scores),
            token_ids=tuple(self._ids),
            **self._told,
        )

    @property
    def stream(self) -> Stream:
        """Its form."""
        return Stream(num_chunks=self._num_chunks, has_done=self._has_done, breaches=tuple(self._breaches))

    def breach(self, what: str, line: int, expected: str, found: str) -> None:
        """Note one, while there is room."""
        if len(self._breaches) < MAX_BREACHES:
            self._breaches.append(Breach(what=what, line=line, expected=expected, found=found))

    def decoded(self, raw: bytes, number: int) -> str:
        """A line as text."""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            self.breach("bytes that are not UTF-8", number, "UTF-8", f"{raw[error.start : error.start + 4]!r}")
            return raw.decode("utf-8", "replace")

    def take(self, event: Event) -> None:
        """One event."""
        if self._has_done:
            self.breach("event after [DONE]", event.line, "the end", event.data[:60])
            return
        if event.data == DONE:
            self._has_done = True
            return
        self._num_chunks += 1
        try:
            self._chunk(reading.parse_json(event.data, "data"), event.line)
        except reading.BadShape as error:
            self.breach(f"chunk: {error.place}", event.line, error.expected, error.found)

    def _chunk(self, document: Any, line: int) -> None:
        if isinstance(document, dict) and document.get("error"):
            raise EndpointGaveUp(f"the stream ends in an error: {str(document['error'])[:200]}")
        choice = reading.first_choice(document)
        self._same_id(document, line)
        self._note(document)
        if choice is None:
            return
        if self._kind is Kind.TEXT:
            text = reading.require(choice.get("text") or "", str, "choices[0].text", "a string")
        else:
            delta = reading.require(choice.get("delta"), dict, "delta", "an object")
            text = reading.text_of(delta)
            self._parts["reasoning"].append(reading.reasoning_of(delta))
        if self._finish is not None and text:
            self.breach("text after the finish reason", line, "no more text", repr(text[:40]))
        self._parts["text"].append(text)
        self._scores += reading.scores_of(choice, self._kind)
        self._ids += reading.ids_of(choice.get("token_ids"))
        self._finish = self._finish or reading.finish_of(choice)

    def _same_id(self, document: Any, line: int) -> None:
        """All chunks of one answer carry one id."""
        found = document.get("id")
        if not isinstance(found, str):
            return
        if self._id is not None and found != self._id:
            self.breach("chunk of another answer", line, f"id {self._id[:60]}", found[:60])
        self._id = self._id or found

    def _note(self, document: Any) -> None:
        """What chunks tell beside text; the last one has the usage."""
        usage = document.get("usage")
        told: dict[str, Any] = {key: reading.count_of(usage, key) for key in ("prompt_tokens", "completion_tokens")}
        told["fingerprint"] = self._told.get("fingerprint") or reading.fingerprint_of(document)
        self._told |= {key: value for key, value in told.items() if value is not None}
