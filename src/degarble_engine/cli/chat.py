"""`degarble chat`: talk to an endpoint, or to a model that is served for as long as one talks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated

import typer

DEFAULT_URL = "http://127.0.0.1:8000"
PROMPT = "> "


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("chat")(chat)


def chat(
    where: Annotated[
        str, typer.Argument(help="An address, or a model to serve meanwhile.", metavar="[URL|MODEL]")
    ] = DEFAULT_URL,
    model: Annotated[str | None, typer.Option(help="Default: the first that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling; default: the server's.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of sampling.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Of an answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds of silence until an answer counts as failed.")] = 600.0,
) -> int:
    """Chat in the terminal; /help lists what begins with a slash, Ctrl-C stops an answer. Lines of a pipe are turns."""
    import asyncio

    from rich.console import Console

    from degarble.errors import TargetError
    from degarble_engine.endpoint.client import Endpoint, EndpointFailed, key_of_environment
    from degarble_engine.talk.conversation import Conversation
    from degarble_engine.talk.own_server import own_server
    from degarble_engine.talk.session import Session

    key = key_of_environment()
    given = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed}
    params = {name: value for name, value in given.items() if value is not None}
    is_address = where.startswith(("http://", "https://"))

    async def first_model(endpoint: Endpoint) -> str:
        async with endpoint.opened():
            served = await endpoint.models()
        if not served:
            raise TargetError(f"{url}: serves no model")
        return served[0]

    with ExitStack() as stack:
        url = where if is_address else stack.enter_context(own_server(where, _say))

        def connect() -> Endpoint:
            return Endpoint(url, api_key=key, seconds=timeout)

        try:
            name = model or asyncio.run(first_model(connect()))
        except EndpointFailed as error:
            raise TargetError(f"{url}: {error}") from None
        if sys.stdin.isatty():
            _say(f"{name} at {url}; /help lists commands")
        return Session(connect, Conversation(name, system, params), Console()).run(_lines())


def _lines() -> Iterator[str]:
    """What is typed, with a line editor where there is one. Ctrl-C drops the line, Ctrl-D is the end."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    try:
        import readline  # noqa: F401  its import changes input()
    except ModuleNotFoundError:
        pass
    while True:
        try:
            yield input(PROMPT)
        except KeyboardInterrupt:
            sys.stdout.write("\nCtrl-D ends\n")
        except EOFError:
            sys.stdout.write("\n")
            return


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
