"""`degarble ab`: which of two checkpoints is better, and whether these prompts can tell."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble_engine.cli.flags import Format, Output
from degarble_engine.cli.library_log import only_errors
from degarble_engine.cli.walk_progress import WalkProgress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ab")(ab)


def ab(
    a: Annotated[str, typer.Argument(metavar="A", help="What is there now.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is to take its place.")],
    prompts: Annotated[
        str, typer.Option(metavar="FILE", help="A text a line, or JSON lines: prompt, reference, pattern …")
    ],
    reference: Annotated[
        str | None, typer.Option(metavar="DIR", help="The model that kl and top1 are taken to: the unquantised one.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Of kl, ppl, top1, bleu, chrf, exact, pass-rate, with commas. All that is possible."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=0, max=4096, help="Of an answer; 0: no answers.")] = 64,
    max_length: Annotated[int, typer.Option(min=2, max=32768, help="Tokens of a prompt.")] = 512,
    temperature: Annotated[float, typer.Option(min=0, max=2)] = 0.0,
    draws: Annotated[int, typer.Option(min=100, max=100_000, help="Of the bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of answers and draws.")] = 0,
    judge: Annotated[
        str | None, typer.Option(metavar="lm-eval:TASK,…", help="Also run these tasks of lm-eval on both.")
    ] = None,
    judge_tasks: Annotated[str | None, typer.Option(metavar="DIR", help="A folder with tasks of your own.")] = None,
    fail_on: Annotated[str, typer.Option(help="worse: status 1 where B is worse; never.")] = "never",
    format: Format = None,
    output: Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Compare A and B on the same prompts: paired differences, their intervals, and a verdict."""
    from degarble.cli.output import destinations, write_report
    from degarble.errors import MissingExtra, UsageError

    if fail_on not in ("worse", "never"):
        raise UsageError(f"--fail-on {fail_on[:40]!r}: worse or never")
    places = destinations(format, output)
    try:
        from degarble_engine.ab import question
        from degarble_engine.ab.prompt import read_prompts
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    asked = question.Question(
        prompts=tuple(read_prompts(prompts)),
        reference=reference,
        metrics=tuple(one.strip() for one in metric.split(",")) if metric else (),
        max_tokens=max_tokens,
        max_length=max_length,
        temperature=temperature,
        draws=draws,
        seed=seed,
        judge=judge,
        judge_tasks=judge_tasks,
    )
    report = question.ab(a, b, asked, None if quiet else WalkProgress())
    write_report(report, places, detail=0)
    is_worse = report.comparison is not None and report.comparison["verdict"] == question.WORSE
    return report.exit_code("error") or int(is_worse and fail_on == "worse")
