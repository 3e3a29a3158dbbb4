"""`degarble overflow`: in which dtype, engine and length a model stays finite."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble.cli.output import complete_fail_on, complete_format


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
    text: Annotated[list[str] | None, typer.Option("--text", help="Run on this text; may be repeated.")] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Texts: JSON lines with `text` or `prompt`, or one a line.", metavar="FILE")
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(help="error, warning, info or partial: what makes the status 1.", autocompletion=complete_fail_on),
    ] = "error",
    format: Annotated[
        str | None, typer.Option("--format", help="text (default), json, markdown …", autocompletion=complete_format)
    ] = None,
    output: Annotated[
        list[str] | None, typer.Option("--output", "-o", help="Write the report there.", metavar="FILE")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only causes, one line each; no progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also notes.")] = False,
) -> int:
    """Run TARGET in the arithmetic of engines: which dtype and length are safe, and what overflows first, and where."""
    from degarble.cli.output import destinations, require_fail_on, write_report
    from degarble.errors import MissingExtra

    require_fail_on(fail_on)
    places = destinations(format, output)
    try:
        from degarble_engine.numerics.precision import short_name
        from degarble_engine.numerics.tokens import read_prompts
        from degarble_engine.overflow import question
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    from degarble_engine.cli.compare import _be_silent, _Progress

    _be_silent()
    texts = [*(text or []), *(read_prompts(prompts) if prompts else [])]
    asked = question.OverflowQuestion(
        dtypes=[short_name(one) for one in dtype or ("fp16", "bf16")],
        engines=[one.strip().lower() for one in engine_profile] if engine_profile else None,
        lengths=question.read_lengths(lengths),
        texts=texts or None,
        progress=None if quiet else _Progress(),
    )
    report = question.overflow(target, asked)
    write_report(report, places, detail=-1 if quiet else int(verbose))
    return report.exit_code(fail_on)
