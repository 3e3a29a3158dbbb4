"""`degarble overflow`: in which dtype, engine and length a model stays finite."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble_engine.cli.flags import FailOn, Format, Output, Prompts, Quiet, Text, Verbose, texts_of
from degarble_engine.cli.library_log import only_errors
from degarble_engine.cli.walk_progress import WalkProgress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("overflow")(overflow)


def overflow(
    target: Annotated[str, typer.Argument(help="A folder, .safetensors or .gguf file.")],
    dtype: Annotated[
        list[str] | None, typer.Option(help="fp16, bf16 or fp32; may be repeated. Both halves if not given.")
    ] = None,
    engine_profile: Annotated[
        list[str] | None,
        typer.Option(
            help="Arithmetic of vllm, sglang, llama.cpp …; may be repeated. All if not given.", metavar="NAME"
        ),
    ] = None,
    lengths: Annotated[
        str, typer.Option(help="Tokens: 512, 128,512 or 512..32k (doubling).", metavar="RANGE")
    ] = "16..256",
    budget: Annotated[
        float | None,
        typer.Option(
            min=1, help="Run only lengths that take about so many seconds; the others are named.", metavar="SECONDS"
        ),
    ] = None,
    text: Text = None,
    prompts: Prompts = None,
    fail_on: FailOn = "error",
    format: Format = None,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Run TARGET in the arithmetic of engines: which dtype and length are safe, and what overflows first, and where."""
    from degarble.cli.output import destinations, require_fail_on, write_report
    from degarble.errors import MissingExtra

    require_fail_on(fail_on)
    places = destinations(format, output)
    try:
        from degarble_engine.numerics.precision import short_name
        from degarble_engine.overflow import question
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    asked = question.OverflowQuestion(
        dtypes=[short_name(one) for one in dtype or ("fp16", "bf16")],
        engines=[one.strip().lower() for one in engine_profile] if engine_profile else None,
        lengths=question.read_lengths(lengths),
        texts=texts_of(text, prompts),
        progress=None if quiet else WalkProgress(),
        budget_seconds=budget,
    )
    report = question.overflow(target, asked)
    write_report(report, places, detail=-1 if quiet else int(verbose))
    return report.exit_code(fail_on)
