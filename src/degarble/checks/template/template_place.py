"""Where a chat template stands, for findings."""

from __future__ import annotations

from degarble.finding import Fix, Location
from degarble.tokenizer.chat_template import ChatTemplate

FETCH = Fix(id="fetch-chat-template", safe=False)
"""The template of the release that the weights come from; the files at hand do not hold it."""


def place_of(template: ChatTemplate, *, token: str | None = None) -> Location:
    """The place of a template."""
    return Location(file=template.file, key=template.key, token=token)


def title_of(template: ChatTemplate) -> str:
    """File, key and name: `tokenizer_config.json: chat_template.1 (tool_use)`."""
    title = template.file if template.key is None else f"{template.file}: {template.key}"
    return title if template.name == "default" else f"{title} ({template.name[:40]})"
