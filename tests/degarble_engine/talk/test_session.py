"""Turns, commands, what an endpoint may not do to a terminal, and an answer that is stopped."""

from __future__ import annotations

import asyncio
import io
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from degarble.errors import TargetError
from degarble_engine.cli.chat import register
from degarble_engine.endpoint.client import Endpoint
from degarble_engine.talk.conversation import Conversation
from degarble_engine.talk.own_server import own_server
from degarble_engine.talk.safe_text import safe_text
from degarble_engine.talk.session import Session
from tests.conftest import unpacked_golden
from tests.degarble_engine.endpoint.fakes import DONE, HEAD, endpoint, event, text
from tests.degarble_engine.server.test_process import listening


def typed(
    address: str, *lines: str, model: str = "tiny", file: io.StringIO | None = None, **params: Any
) -> tuple[str, Conversation, int]:
    shown = file or io.StringIO()
    conversation = Conversation(model, params=params)
    session = Session(lambda: Endpoint(address, seconds=30), conversation, Console(file=shown, width=200))
    status = session.run(iter(lines))
    return shown.getvalue(), conversation, status


def test_turns_and_commands_against_our_own_server() -> None:
    with listening(num_gpu_blocks=400) as (_, address, _service):
        greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
        shown, conversation, status = typed(
            address, "", "hello", "/nothing", "//slash", "/show", "/system Be brief.", "again", "/exit", "never", **greedy
        )  # fmt: skip
        assert status == 0 and "/nothing is no command" in shown and "8 tokens" in shown and "cut: max_tokens" in shown
        assert "user: hello" in shown and "user: /slash" in shown and "never" not in shown
        assert [message["role"] for message in conversation.messages] == ["system", "user", "assistant"]
        assert conversation.messages[0]["content"] == "Be brief." and conversation.turns[0]["content"] == "again"
        app = typer.Typer()
        register(app)
        result = CliRunner().invoke(app, [address, "--max-tokens", "4", "--temperature", "0"], input="hello\n/reset\n")
        assert result.exit_code == 0 and "4 tokens" in result.stdout and "forgotten" in result.stdout


def test_a_failure_is_told_and_takes_its_question_back() -> None:
    shown, conversation, status = typed("http://127.0.0.1:9", "hello")
    assert status == 1 and "failed: connect" in shown and conversation.turns == []


def test_nothing_steers_the_terminal() -> None:
    assert (
        safe_text("a\x1b[2J\u202eb\x07\n\t客\u3000👩\u200d🚀\ud800")
        == "a\\x1b[2J\\u202eb\\x07\n\t客\u3000👩\u200d🚀\\ud800"
    )

    async def script(number: int, writer: asyncio.StreamWriter) -> None:
        thought = event(choices=[{"index": 0, "delta": {"reasoning_content": "hm\x1b"}}])
        writer.write(HEAD + thought + text("[red]\x1b]0;x", "content_filter") + DONE)

    with _in_thread(script) as address:
        shown, _, _ = typed(address, "hello")
    assert "\x1b]" not in shown and "[red]\\x1b]0;x" in shown and "hm\\x1b" in shown and "a guard or a filter" in shown


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """A job in the background is started deaf to them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
def test_ctrl_c_stops_the_answer_and_keeps_what_came() -> None:
    class Impatient(io.StringIO):
        def write(self, text: str) -> int:
            if "half" in text:
                signal.raise_signal(signal.SIGINT)
            return super().write(text)

    async def script(number: int, writer: asyncio.StreamWriter) -> None:
        if number == 1:
            writer.write(HEAD + text("half an answer"))
            await writer.drain()
            await asyncio.sleep(0.2)
            writer.transport.abort()
        else:
            writer.write(HEAD + text("whole", "stop") + DONE)

    with _in_thread(script) as address:
        shown, conversation, status = typed(address, "first", "second", file=Impatient())
    assert status == 0 and "half an answer\nstopped" in shown
    assert [turn["content"] for turn in conversation.turns] == ["first", "half an answer", "second", "whole"]


class _in_thread:
    """A fake endpoint beside the test, whose own thread runs the session."""

    def __init__(self, script: Any) -> None:
        self._script, self._address = script, ""
        self._is_up, self._loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        async with endpoint(self._script) as self._address:
            self._is_up.set()
            await self._end.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            await asyncio.wait({task})

    def __enter__(self) -> str:
        self._thread.start()
        self._is_up.wait()
        return self._address

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()


@pytest.mark.slow
def test_a_model_that_cannot_be_served_is_said() -> None:
    said: list[str] = []
    with pytest.raises(TargetError, match="could not be served"), own_server("/no/such/model", said.append):
        pass
    assert any("/no/such/model" in line for line in said)


@pytest.mark.slow
def test_a_model_is_served_for_as_long_as_one_talks() -> None:
    with own_server(str(unpacked_golden() / "base-bf16"), print) as address:
        shown, _, status = typed(address, "hello", model="base-bf16", max_tokens=3)
    assert status == 0 and "tokens" in shown
    assert "failed: connect" in typed(address, "hello")[0]
