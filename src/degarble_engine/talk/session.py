"""The loop of a terminal: lines in, answers out, commands that begin with a slash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from rich.console import Console

from degarble_engine.endpoint.client import Endpoint, EndpointFailed
from degarble_engine.talk.conversation import Conversation, Reply
from degarble_engine.talk.safe_text import safe_text

HELP = """/reset           forget what was said
/system TEXT     set the system message; without TEXT remove it (forgets what was said)
/show            what the model would be sent
/help            this
/exit, Ctrl-D    end
//TEXT           a message that begins with a slash
Ctrl-C           stop the answer; what came of it stays"""
WHY = {
    "length": "cut: max_tokens or the model's room",
    "content_filter": "ended by the server: a guard or a filter",
    None: "stopped without a reason",
}


class Session:
    """One conversation in one terminal."""

    def __init__(self, make_endpoint: Callable[[], Endpoint], conversation: Conversation, console: Console) -> None:
        self._make_endpoint, self._conversation, self._console = make_endpoint, conversation, console

    def run(self, lines: Iterator[str]) -> int:
        """Until the lines or the patience end. Status 1 if the last answer failed."""
        has_failed = False
        for line in lines:
            text = line.strip()
            if not text:
                continue
            if text.startswith("/") and not text.startswith("//"):
                if not self._obey(text):
                    break
                continue
            has_failed = not self._answer(text[1:] if text.startswith("//") else text)
        return int(has_failed)

    def _obey(self, text: str) -> bool:
        """False: the end."""
        command, _, rest = text.partition(" ")
        conversation = self._conversation
        match command:
            case "/exit" | "/quit":
                return False
            case "/reset":
                conversation.reset()
                self._note("forgotten")
            case "/system":
                conversation.system = rest.strip() or None
                conversation.reset()
                self._note("system message set" if conversation.system else "no system message")
            case "/show":
                for message in conversation.messages:
                    self._note(f"{message['role']}: {safe_text(message['content'])}")
            case "/help":
                self._note(HELP)
            case _:
                self._note(f"{safe_text(command)} is no command; /help lists them")
        return True

    def _answer(self, text: str) -> bool:
        try:
            reply = asyncio.run(self._ask(text))
        except KeyboardInterrupt:
            self._note("\nstopped")
            return True
        except EndpointFailed as error:
            self._note(f"\nfailed: {safe_text(str(error))}")
            return False
        self._note("\n" + _measured(reply))
        return True

    async def _ask(self, text: str) -> Reply:
        async with self._make_endpoint().opened() as endpoint:
            return await self._conversation.ask(endpoint, text, self._show)

    def _show(self, piece: str, is_thought: bool) -> None:
        style = "dim italic" if is_thought else None
        self._console.print(safe_text(piece), end="", style=style, markup=False, highlight=False, soft_wrap=True)

    def _note(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def _measured(reply: Reply) -> str:
    parts: list[str] = []
    if reply.num_tokens is not None:
        rate = reply.num_tokens / reply.seconds if reply.seconds else 0.0
        parts.append(f"{reply.num_tokens} tokens, {rate:.1f} a second")
    if reply.ttft is not None:
        parts.append(f"first after {reply.ttft:.2f} s")
    why = WHY.get(reply.finish_reason)
    if why is not None:
        parts.append(why)
    return f"[{'; '.join(parts)}]"
