"""How a template opens and closes the assistant's turn, read off where a known question and answer stand."""

from __future__ import annotations

import re
from collections.abc import Iterable

from degarble.templates.conversations import ANSWER, ANSWERED, ASK, ASK_PROMPT, FOLLOW_UP, QUESTION, TWO_TURNS
from degarble.templates.renderings import TemplateRenderings

ITEM = re.compile(r"<[^<>\s]{1,80}>|\[/?[A-Z_]{2,40}\]|\w+|[^\w\s]")
"""A marker, a word, or a sign. White space does not count: Llama 2 writes a space between turns, or does not."""


def opening_items(renderings: TemplateRenderings) -> list[str] | None:
    """What stands between the end of a user's turn and the answer: `<|im_start|>`, `assistant`.

    Empty where the answer follows the question's end at once, as after `[/INST]`. None where it cannot be told.
    """
    asked, answered = renderings.text(ASK), renderings.text(ANSWERED)
    if asked is None or answered is None:
        return None
    before = _between(answered, QUESTION, ANSWER)
    return _beyond(before, _after(asked, QUESTION))


def prompt_items(renderings: TemplateRenderings) -> list[str] | None:
    """What `add_generation_prompt` adds after the question."""
    asked, prompted = renderings.text(ASK), renderings.text(ASK_PROMPT)
    if asked is None or prompted is None:
        return None
    return _beyond(_after(prompted, QUESTION), _after(asked, QUESTION))


def closings(renderings: TemplateRenderings, tokens: Iterable[str]) -> list[str]:
    """Tokens of the tokenizer that come first after an answer: at the end, and before the next question.

    gpt-oss ends its last message with `<|return|>` and earlier ones with `<|end|>`; GLM writes nothing but the next
    user's marker.
    """
    known = frozenset(tokens)
    found: list[str] = []
    for conversation, limit in ((ANSWERED, ""), (TWO_TURNS, FOLLOW_UP)):
        text = renderings.text(conversation)
        rest = "" if text is None else _between(text, ANSWER, limit)
        token = _first_token(rest.lstrip(), known)
        if token is not None and token not in found:
            found.append(token)
    return found


def openings(renderings: TemplateRenderings) -> str:
    """All that stands before the first question."""
    return (renderings.text(ASK) or "").partition(QUESTION)[0]


def _first_token(text: str, known: frozenset[str]) -> str | None:
    return next((text[:length] for length in range(min(len(text), 80), 0, -1) if text[:length] in known), None)


def _after(text: str, mark: str) -> list[str]:
    return ITEM.findall(text.partition(mark)[2])


def _between(text: str, start: str, end: str) -> str:
    rest = text.partition(start)[2]
    return rest.partition(end)[0] if end else rest


def _beyond(whole: str | list[str], known: list[str]) -> list[str]:
    """Items after those that both begin with."""
    items = ITEM.findall(whole) if isinstance(whole, str) else whole
    same = 0
    while same < min(len(items), len(known)) and items[same] == known[same]:
        same += 1
    return items[same:]
