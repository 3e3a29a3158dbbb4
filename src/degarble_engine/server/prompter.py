"""Texts and conversations to token ids.

What a user typed never becomes a control token of a chat: where the text of an added token stands in a user's message,
or in a tool's result, a mark is put behind its first character before the template runs, and the prompt is cut there
before it is encoded, so that the token cannot match. The template sees, trims and tests nearly the same text as ever. The
two halves are encoded apart; where an encoder writes a space in front of every text (Llama 2), the second half gets one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from degarble.errors import EvidenceMissing
from degarble.templates.bos import adders
from degarble.templates.program import MAX_UNITS, Failure, Problem, Program
from degarble.tokenizer.bpe_encoder import BpeEncoder
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.encode import Encoder
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.special_texts import finder_of
from degarble_engine.server.api_error import ApiError, invalid
from degarble_engine.server.messages import Message

UNITS = 10 * MAX_UNITS
"""Steps of one rendering; a conversation of a million characters needs some 100,000."""
FOREIGN_ROLES = ("user", "tool", "function")
"""Whose texts come from outside."""
MARKS = range(0xE000, 0xF8FF)
"""Private use: no text of meaning."""
TOOL_TEMPLATE = "tool_use"
GUESS = "longest-match"


class Prompter:
    """Not safe for threads: a template has one budget."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: Sequence[ChatTemplate] = (),
        special_texts: Mapping[str, str] | None = None,
        tokenizer_config: Mapping[str, Any] | None = None,
    ) -> None:
        """`special_texts`: role -> text, such as `bos_token`."""
        self._special_texts = dict(special_texts or {})
        self._encoder, self.method = _encoder_of(tokenizer)
        self._specials = finder_of(tuple(one.content for one in tokenizer.added_tokens.values() if one.content))
        self._programs: dict[str, Program] = {}
        for template in templates:
            if template.name not in self._programs:
                self._programs[template.name] = Program(template.text, UNITS, datetime.datetime.now)
        bos = self._special_texts.get("bos_token", "")
        bos_id = tokenizer.ids_by_piece.get(bos)
        adder = next(adders(tokenizer, tokenizer_config or {}, bos), None)
        self._leading = [bos_id] * adder.count if adder is not None and bos_id is not None else []

    def encode(self, text: str, *, adds_special: bool = True) -> list[int]:
        """A plain text, with BOS in front where the tokenizer writes one; texts of added tokens become these."""
        return [*(self._leading if adds_special else ()), *self._encoder.encode(text)]

    def encode_plain(self, text: str) -> list[int]:
        """A text in which the text of a control token is text."""
        return [one for part in self._cut(text) if part for one in self._encoder.encode(part)]

    def encode_chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any]
    ) -> list[int]:
        """A conversation, as the model's template writes it. `variables`: further ones of the template."""
        program = self._program(bool(tools))
        if tools and "tools" not in program.source.names:
            raise invalid("the model's chat template has no place for tools", "tools", "unsupported")
        mark = self._mark(messages, variables, program.text)
        program.refill()
        text = program.run(
            {
                **self._special_texts,
                "add_generation_prompt": True,
                "tools": list(tools) if tools else None,
                "documents": None,
                **variables,
                "messages": [self._marked(message, mark) for message in messages],
            }
        )
        if isinstance(text, Problem):
            raise _refusal(text)
        return [one for part in text.split(mark) if part for one in self._encoder.encode(part)]

    def _program(self, with_tools: bool) -> Program:
        wanted = (TOOL_TEMPLATE, "default") if with_tools else ("default",)
        for name in (*wanted, *self._programs):
            if name in self._programs:
                return self._programs[name]
        raise invalid("the model has no chat template; use /v1/completions", "messages", "no_chat_template")

    def _mark(self, *values: object) -> str:
        said = repr(values)  # shows private characters as escapes, and so never holds one
        found = next((chr(one) for one in MARKS if f"\\u{one:04x}" not in said), None)
        if found is None:
            raise invalid("the conversation holds every character of private use", "messages")
        return found

    def _marked(self, message: Message, mark: str) -> Message:
        content = message.get("content")
        if message["role"] not in FOREIGN_ROLES or not isinstance(content, str):
            return message
        return {**message, "content": mark.join(self._cut(content))}

    def _cut(self, text: str) -> Iterator[str]:
        """Parts that no added token's text is in, each but the last ending inside one."""
        done = 0
        while (found := self._specials.find(text, done)) >= 0:
            yield text[done : found + 1]
            done = found + 1
        yield text[done:]


def _encoder_of(tokenizer: Tokenizer) -> tuple[Encoder | BpeEncoder, str]:
    """The library that owns the format; for GGUF our own BPE, and longest match, which is a guess, where that has none."""
    library = Encoder(tokenizer)
    if library.method == GUESS:
        try:
            own = BpeEncoder(tokenizer)
            own.encode("a")
        except EvidenceMissing:
            return library, GUESS
        return own, "bpe"
    return library, library.method


def _refusal(problem: Problem) -> ApiError:
    if problem.failure is Failure.REFUSED:
        return invalid(f"the chat template refuses the conversation: {problem.reason}", "messages", "template_refused")
    if problem.failure is Failure.COSTLY:
        return invalid(f"the chat template {problem}", "messages", "template_too_costly")
    return invalid(f"the chat template {problem}", "messages", "template_failed")
