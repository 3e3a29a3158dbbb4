"""Conversations that every chat template is asked to write, with texts that can be found again in what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

Message = dict[str, Any]

SYSTEM = "Stay brief and calm, keeper17."
QUESTION = "Where does the coastal road end, pilot23?"
ANSWER = "Beside the northern lighthouse, captain31."
FOLLOW_UP = "And who lives there now, sailor47?"
SPECIAL = "A & B < C > 'd' \"e\" {{ f }} {% g %} \\n\tnaïve 客 🌶"
"""Characters that a template has no business changing."""
TOOL = {
    "type": "function",
    "function": {
        "name": "tide_table",
        "description": "Times of high water.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string", "description": "Name of the harbour."}},
            "required": ["harbour"],
        },
    },
}
CALL = {"id": "call00017", "type": "function", "function": {"name": "tide_table", "arguments": {"harbour": "Oban"}}}


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Messages as an API receives them, and whether the model is to answer."""

    name: str
    messages: Sequence[Message]
    prompt: bool = False
    """`add_generation_prompt`."""
    tools: Sequence[dict[str, Any]] | None = None

    def texts(self) -> list[str]:
        """What users and the assistant said."""
        return [message["content"] for message in self.messages if message["role"] in ("user", "assistant")]

    def in_parts(self) -> Conversation:
        """The same with contents as lists, as templates of models that see expect them."""
        messages = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in self.messages]
        return Conversation(name=self.name, messages=messages, prompt=self.prompt, tools=self.tools)

    def variables(self) -> dict[str, Any]:
        """As transformers passes them."""
        tools = None if self.tools is None else list(self.tools)
        return {
            "messages": [dict(message) for message in self.messages],
            "tools": tools,
            "documents": None,
            "add_generation_prompt": self.prompt,
        }


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


ASK = Conversation(name="user", messages=[_said("user", QUESTION)])
ASK_PROMPT = Conversation(name="user, prompt", messages=ASK.messages, prompt=True)
ANSWERED = Conversation(name="user, assistant", messages=[*ASK.messages, _said("assistant", ANSWER)])
TWO_TURNS = Conversation(name="two turns", messages=[*ANSWERED.messages, _said("user", FOLLOW_UP)])
TWO_TURNS_PROMPT = Conversation(name="two turns, prompt", messages=TWO_TURNS.messages, prompt=True)
SYSTEM_PROMPT = Conversation(
    name="system, user, prompt", messages=[_said("system", SYSTEM), *ASK.messages], prompt=True
)
SPECIAL_PROMPT = Conversation(name="special characters, prompt", messages=[_said("user", SPECIAL)], prompt=True)
TOOLS_PROMPT = Conversation(name="tools, prompt", messages=ASK.messages, prompt=True, tools=[TOOL])
TOOL_ROUND = Conversation(
    name="tool round, prompt",
    messages=[
        *ASK.messages,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "tide_table", "tool_call_id": CALL["id"], "content": "06:12 and 18:40"},
    ],
    prompt=True,
    tools=[TOOL],
)

PLAIN = (ASK, ASK_PROMPT, ANSWERED, TWO_TURNS, TWO_TURNS_PROMPT, SYSTEM_PROMPT)
"""What every chat model must be able to read; some refuse the system role."""
WITH_TOOLS = (TOOLS_PROMPT, TOOL_ROUND)
"""Only for templates that ask for `tools`."""
