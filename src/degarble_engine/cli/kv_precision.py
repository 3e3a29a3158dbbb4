"""`degarble kv-precision`: what a quantised KV cache costs, layer by layer."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble_engine.cli.flags import Format, Output, Text
from degarble_engine.cli.library_log import only_errors
from degarble_engine.cli.walk_progress import WalkProgress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("kv-precision")(kv_precision)


def kv_precision(
    target: Annotated[str, typer.Argument(help="A folder, .safetensors or .gguf file.")],
    kv_dtype: Annotated[
        list[str] | None,
        typer.Option(
            help="fp8, int8 or int4, then :KEYS,VALUES of tensor, head, channel, token; may be repeated.",
            metavar="FORM",
        ),
    ] = None,
    text: Text = None,
    format: Format = None,
    output: Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Simulate quantised KV caches on TARGET: loss of each layer, keys and values apart, and KL at the end."""
    from degarble.cli.output import destinations, write_report
    from degarble.errors import MissingExtra

    places = destinations(format, output)
    try:
        from degarble_engine.kv_precision import question
        from degarble_engine.kv_precision.cache_form import DEFAULT, read_form
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    forms = [read_form(one) for one in kv_dtype or DEFAULT]
    report = question.kv_precision(target, forms, text, None if quiet else WalkProgress())
    write_report(report, places, detail=0)
    return report.exit_code("error")
