"""`degarble quantize`: ship a model that does not talk garbage."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble_engine.cli.flags import Format, Output
from degarble_engine.cli.library_log import only_errors
from degarble_engine.cli.walk_progress import WalkProgress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("quantize")(quantize)


def quantize(
    target: Annotated[str, typer.Argument(help="A folder of plain safetensors.")],
    out: Annotated[str, typer.Option(help="The new folder.", metavar="DIR")],
    scheme: Annotated[str, typer.Option(help="W4A16, W4A16_ASYM, W8A16, W8A8, FP8, FP8_BLOCK …")] = "W4A16",
    method: Annotated[str, typer.Option(help="rtn, awq, gptq, or auto: scale moved as awq does, then gptq.")] = "gptq",
    group_size: Annotated[int | None, typer.Option(help="Inputs that share a scale; 128.")] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="A module's full name, or re:PATTERN; may be repeated.", metavar="NAME"),
    ] = None,
    calibration: Annotated[
        str, typer.Option(help="Text: one a line, or JSON lines with text or ids.", metavar="FILE")
    ] = "builtin",
    calibration_samples: Annotated[int, typer.Option(help="Sequences of it at most.")] = 128,
    calibration_tokens: Annotated[int, typer.Option(help="Tokens a sequence at most.")] = 512,
    export: Annotated[str, typer.Option(help="compressed-tensors, gptq, awq or fp8.")] = "compressed-tensors",
    forgotten_layers: Annotated[
        int, typer.Option(help="Break it on purpose: last layers whose up_proj is scaled without down_proj.")
    ] = 0,
    base_model: Annotated[str | None, typer.Option(help="Hub id of TARGET, for the card.", metavar="ID")] = None,
    format: Format = None,
    output: Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Quantise TARGET into a new folder, verified bit for bit; an interrupted run goes on where it stopped."""
    from degarble.cli.output import destinations, write_report
    from degarble.errors import MissingExtra

    places = destinations(format, output)
    try:
        from degarble_engine.quantize import quantizing
        from degarble_engine.quantize.recipe import Recipe
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    recipe = Recipe(
        scheme=scheme,
        method=method,
        group_size=group_size,
        ignore=tuple(ignore or ()),
        calibration=calibration,
        calibration_samples=calibration_samples,
        calibration_tokens=calibration_tokens,
        export=export,
        forgotten_layers=forgotten_layers,
        base_model=base_model,
    )
    report = quantizing.quantize(target, out, recipe, None if quiet else WalkProgress())
    write_report(report, places, detail=0)
    return report.exit_code("error")
