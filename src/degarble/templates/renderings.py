"""One template with all that it writes for the probe conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from degarble.templates.conversations import PLAIN, SPECIAL_PROMPT, WITH_TOOLS, Conversation
from degarble.templates.literals import TemplateSource
from degarble.templates.program import MAX_UNITS, Failure, Problem, Program
from degarble.tokenizer.chat_template import ChatTemplate

ENDS_ALL = (Failure.COSTLY, Failure.UNSAFE, Failure.UNJUDGED)
"""Failures after which no further conversation is tried."""


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one conversation."""

    conversation: Conversation
    text: str | None = None
    problem: Problem | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything that was said stands in the text."""
        return self.text is not None and all(said in self.text for said in self.conversation.texts())


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRenderings:
    """A template that was tried."""

    template: ChatTemplate
    source: TemplateSource
    problem: Problem | None
    """Why it could not be run at all."""
    results: Mapping[str, Rendering]
    """Conversation -> rendering; conversations after one that ended all are not there."""
    units_left: int
    """Of the budget that it was given."""

    def text(self, conversation: Conversation) -> str | None:
        """What it wrote, if everything that was said is in it."""
        found = self.results.get(conversation.name)
        return found.text if found is not None and found.is_whole else None

    def plain_texts(self) -> Iterator[tuple[Conversation, str]]:
        """Conversations without tools that were written."""
        for conversation in PLAIN:
            text = self.text(conversation)
            if text is not None:
                yield conversation, text


def render_template(
    template: ChatTemplate, special_tokens: Mapping[str, str], units: int = MAX_UNITS
) -> TemplateRenderings:
    """Run every conversation; `special_tokens`: role -> text, the variables `bos_token`, `eos_token` and others."""
    program = Program(template.text, units)
    results: dict[str, Rendering] = {}
    if program.problem is None:
        tools = WITH_TOOLS if "tools" in program.source.names else ()
        in_parts = False
        for conversation in (*PLAIN, SPECIAL_PROMPT, *tools):
            result = _render(program, conversation, special_tokens, in_parts)
            if not results and not result.is_whole:  # the first: perhaps contents are expected in parts
                other = _render(program, conversation, special_tokens, True)
                in_parts = other.is_whole
                result = other if in_parts else result
            results[conversation.name] = result
            if result.problem is not None and result.problem.failure in ENDS_ALL:
                break
    return TemplateRenderings(
        template=template,
        source=program.source,
        problem=program.problem,
        results=results,
        units_left=program.units_left,
    )


def _render(
    program: Program, conversation: Conversation, special_tokens: Mapping[str, str], in_parts: bool
) -> Rendering:
    shown = conversation.in_parts() if in_parts else conversation
    result = program.run({**special_tokens, **shown.variables()})
    if isinstance(result, Problem):
        return Rendering(conversation=conversation, problem=result)
    return Rendering(conversation=conversation, text=result)
