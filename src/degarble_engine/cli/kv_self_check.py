"""`degarble kv self-check TARGET`: does our engine's cache keep a model's answers clean of rows that nobody may read?"""

from __future__ import annotations

from typing import Annotated

import typer

from degarble_engine.cli.flags import Format, Output
from degarble_engine.cli.library_log import only_errors


def register(group: typer.Typer) -> None:
    """Add the command to `degarble kv`."""
    group.command("self-check")(self_check)


def self_check(
    target: Annotated[str, typer.Argument(help="A folder, .safetensors or .gguf file.")],
    text: Annotated[str | None, typer.Option(help="Text to run; a built-in one if not given.")] = None,
    block_size: Annotated[int, typer.Option(help="Tokens of a block.", min=2, max=256)] = 16,
    format: Format = None,
    output: Output = None,
) -> int:
    """Run TARGET in the reference engine with poisoned rows past its tokens (KVC620), and by prefill against decode (KVC628)."""
    from degarble.cli.output import destinations, write_report
    from degarble.errors import MissingExtra

    places = destinations(format, output)
    try:
        from degarble_engine.live_cache.own_engine import judge_own_engine
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    report = judge_own_engine(target, text, block_size)
    write_report(report, places, detail=0)
    return report.exit_code("error")
