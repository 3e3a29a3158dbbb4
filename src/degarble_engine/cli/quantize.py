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
    recipe: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="YAML with these options and rules for single modules; options win."),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="W4A16 (if not given), W4A16_ASYM, W8A16, W8A8, FP8, NVFP4, MXFP4 …")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="rtn, awq, gptq (if not given), or auto: scale moved as awq does, then gptq.")
    ] = None,
    group_size: Annotated[int | None, typer.Option(help="Inputs that share a scale; 128.")] = None,
    target_bits: Annotated[
        float | None,
        typer.Option(min=2, max=16, help="Mean bits a weight: parts that lose most get more than --scheme."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="A module's full name, or re:PATTERN; may be repeated.", metavar="NAME"),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(help="Text: one a line, or JSON lines with text or ids; built-in if not given.", metavar="FILE"),
    ] = None,
    calibration_samples: Annotated[int | None, typer.Option(help="Sequences of it at most; 128.")] = None,
    calibration_tokens: Annotated[int | None, typer.Option(help="Tokens a sequence at most; 512.")] = None,
    polish: Annotated[
        int | None, typer.Option(help="Rounds of polishing of gptq and auto; 2 if not given, 0 is fastest.")
    ] = None,
    export: Annotated[
        str | None, typer.Option(help="compressed-tensors (if not given), gptq, awq, fp8 or modelopt.")
    ] = None,
    forgotten_layers: Annotated[
        int | None, typer.Option(help="Break it on purpose: last layers whose up_proj is scaled without down_proj.")
    ] = None,
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
        from degarble_engine.quantize.recipe_file import read_recipe
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    given = {
        "scheme": scheme,
        "method": method,
        "group_size": group_size,
        "target_bits": target_bits,
        "ignore": tuple(ignore) if ignore else None,
        "calibration": calibration,
        "calibration_samples": calibration_samples,
        "calibration_tokens": calibration_tokens,
        "polish": polish,
        "export": export,
        "forgotten_layers": forgotten_layers,
        "base_model": base_model,
    }
    from_file = read_recipe(recipe) if recipe is not None else {}
    chosen = {"method": "gptq"} | from_file | {name: value for name, value in given.items() if value is not None}
    report = quantizing.quantize(target, out, Recipe(**chosen), None if quiet else WalkProgress())
    write_report(report, places, detail=0)
    return report.exit_code("error")
