"""`degarble compare`: which component of a candidate is not the reference's."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from degarble.cli.output import complete_fail_on, complete_format

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
    text: Annotated[list[str] | None, typer.Option("--text", help="Run on this text; may be repeated.")] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Texts: JSON lines with `text` or `prompt`, or one a line.", metavar="FILE")
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Arithmetic of the candidate: fp32, bf16, fp16 (also judges overflow), fp16-norm32, fp8, int8, w8a4 …"
        ),
    ] = "fp32",
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Also every error bound beside the measured error, and how errors add up.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(help="Keep the state of the walk there, and go on from it.", metavar="DIR")
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
    """Walk two models layer by layer and name the component that is not the reference's. Needs the extra `engine`."""
    from degarble.cli.output import destinations, require_fail_on, write_report
    from degarble.errors import MissingExtra, UsageError

    require_fail_on(fail_on)
    if (reference is None) == (dump is None):
        raise UsageError("compare needs one of the two: a REFERENCE, or --dump DIR")
    places = destinations(format, output)
    try:
        from degarble_engine import comparison, dump_comparison
        from degarble_engine.numerics.precision import parse
        from degarble_engine.numerics.tokens import read_prompts
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    _be_silent()
    texts = [*(text or []), *(read_prompts(prompts) if prompts else [])]
    question = comparison.Question(
        texts=texts or None,
        origin=(prompts or "--text") if texts else "built-in texts",
        precision=parse(dtype),
        state=resume,
        bounds=bounds,
        progress=None if quiet else _Progress(),
    )
    report: Report
    if dump is not None:
        report = dump_comparison.compare_dump(target, dump, question)
    else:
        report = comparison.compare(target, str(reference), question)
    write_report(report, places, detail=-1 if quiet else int(verbose))
    return report.exit_code(fail_on)


def _be_silent() -> None:
    """transformers' advice about kernels and generation is not the user's business here."""
    import logging

    logging.getLogger("transformers").setLevel(logging.ERROR)


class _Progress:
    """A line on standard error: layer, and time left; kept on one line of a terminal."""

    def __init__(self) -> None:
        self._started: float | None = None

    def __call__(self, done: int, total: int) -> None:
        """After every layer."""
        now = time.monotonic()
        self._started = now if self._started is None else self._started
        left = f", {(now - self._started) / done * (total - done):.0f} s left" if done else ""
        is_terminal = sys.stderr.isatty()
        end = "\n" if done == total or not is_terminal else ""
        sys.stderr.write(f"{chr(13) if is_terminal else ''}layer {done}/{total}{left}   {end}")
        sys.stderr.flush()
