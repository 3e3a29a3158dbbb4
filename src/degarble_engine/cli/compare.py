"""`degarble compare`: which component of a candidate is not the reference's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from degarble_engine.cli.flags import FailOn, Format, Output, Prompts, Quiet, Text, Verbose, texts_of
from degarble_engine.cli.library_log import only_errors
from degarble_engine.cli.walk_progress import WalkProgress

if TYPE_CHECKING:
    from degarble.report.interface import Report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    target: Annotated[str, typer.Argument(help="The candidate: a folder, .safetensors or .gguf file.")],
    reference: Annotated[str | None, typer.Argument(help="A healthy copy, best the model it was made from.")] = None,
    dump: Annotated[
        str | None,
        typer.Option(
            help="Instead of a reference: activations that an engine wrote while it ran TARGET (SGLang's dumper, "
            "msprobe, a folder of .npy or .safetensors).",
            metavar="DIR",
        ),
    ] = None,
    text: Text = None,
    prompts: Prompts = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Arithmetic of the candidate: fp32, bf16, fp16 (also judges overflow), fp16-norm32, fp8, int8, w8a4 …"
        ),
    ] = "fp32",
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Also every error bound beside the measured error, and how errors add up.")
    ] = False,
    kv_dtype: Annotated[
        str | None,
        typer.Option(
            help="Also swap the candidate's KV cache alone: fp8, int8 or int4, then :KEYS,VALUES of tensor, head, channel, "
            "token; its loss stands beside the whole one.",
            metavar="FORM",
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Keep the state of the walk there, and go on from it.", metavar="DIR")
    ] = None,
    fail_on: FailOn = "error",
    format: Format = None,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Walk two models layer by layer and name the component that is not the reference's. Needs the extra `engine`."""
    from degarble.cli.output import destinations, require_fail_on, write_report
    from degarble.errors import MissingExtra, UsageError

    require_fail_on(fail_on)
    if (reference is None) == (dump is None):
        raise UsageError("compare needs one of the two: a REFERENCE, or --dump DIR")
    places = destinations(format, output)
    try:
        from degarble_engine import comparison, dump_comparison
        from degarble_engine.kv_precision.cache_form import read_form
        from degarble_engine.numerics.precision import parse
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    texts = texts_of(text, prompts)
    question = comparison.Question(
        texts=texts,
        origin=(prompts or "--text") if texts else "built-in texts",
        precision=parse(dtype),
        state=resume,
        bounds=bounds,
        kv_form=None if kv_dtype is None else read_form(kv_dtype),
        progress=None if quiet else WalkProgress(),
    )
    report: Report
    if dump is not None and kv_dtype is not None:
        raise UsageError("--kv-dtype swaps a cache in a comparison of two models: give a REFERENCE, not --dump")
    if dump is not None:
        report = dump_comparison.compare_dump(target, dump, question)
    else:
        report = comparison.compare(target, str(reference), question)
    write_report(report, places, detail=-1 if quiet else int(verbose))
    return report.exit_code(fail_on)
