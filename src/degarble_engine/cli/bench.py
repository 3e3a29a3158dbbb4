"""`degarble bench serve`: latencies and goodput of any endpoint of OpenAI's API, under a load that can be repeated."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from degarble_engine.bench.load import LoadRun
    from degarble_engine.bench.settings import LoadSettings


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Measures what runs.", no_args_is_help=True)
    group.command("serve")(serve)
    group.callback()(_group)
    app.add_typer(group, name="bench")


def _group() -> None:
    """Measures what runs."""


def serve(
    url: Annotated[str, typer.Argument(help="The endpoint, such as http://127.0.0.1:8000.")],
    model: Annotated[str | None, typer.Option(help="Default: the first that is served.")] = None,
    api: Annotated[str, typer.Option(help="chat or completions.")] = "chat",
    requests: Annotated[int, typer.Option("--requests", "-n", help="How many.")] = 64,
    rate: Annotated[float, typer.Option(help="Requests a second, as a Poisson process; inf: all at once.")] = float(
        "inf"
    ),
    max_concurrency: Annotated[int, typer.Option(help="In flight at a time; the others wait here.")] = 1024,
    input_words: Annotated[int, typer.Option(help="Words of a prompt.")] = 128,
    output_tokens: Annotated[int, typer.Option(help="max_tokens.")] = 128,
    spread: Annotated[float, typer.Option(help="Lengths vary evenly by this share, 0 to 1.")] = 0.0,
    shared_words: Annotated[int, typer.Option(help="Of each prompt, the same in all.")] = 0,
    temperature: Annotated[float, typer.Option(help="Of sampling.")] = 0.0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Answers of full length; not every endpoint.")
    ] = False,
    goodput: Annotated[
        list[str] | None,
        typer.Option(help="A bound in ms: ttft=500, tpot=50, itl=50 or e2e=9000; may be repeated.", metavar="NAME=MS"),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds until an answer counts as failed.")] = 600.0,
    warm_up: Annotated[int, typer.Option(help="Requests before, which are not counted.")] = 1,
    seed: Annotated[int, typer.Option(help="Of prompts, lengths and arrivals.")] = 0,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write it there.", metavar="FILE")] = None,
    plots: Annotated[str | None, typer.Option(help="Write two SVG drawings there.", metavar="FOLDER")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Time requests to URL: ttft, tpot, itl, e2e_latency, goodput. A key comes from DEGARBLE_API_KEY or OPENAI_API_KEY."""
    from degarble.errors import UsageError
    from degarble_engine.bench.settings import LoadSettings, read_goodput

    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    settings = LoadSettings(
        url=url,
        model=model,
        api=api,
        num_requests=requests,
        rate=rate,
        max_concurrency=max_concurrency,
        input_words=input_words,
        output_tokens=output_tokens,
        spread=spread,
        shared_words=shared_words,
        temperature=temperature,
        ignore_eos=ignore_eos,
        timeout_seconds=timeout,
        goodput=dict(read_goodput(one) for one in goodput or ()),
        seed=seed,
        num_warm_up=warm_up,
    )
    return _told(_measured(settings, quiet), format, output, plots)


def _measured(settings: LoadSettings, quiet: bool) -> LoadRun:
    import asyncio

    from degarble_engine.bench.load import run_load

    num_ended = 0

    def show(timed: object) -> None:
        nonlocal num_ended
        num_ended += 1
        if not quiet and sys.stderr.isatty():
            end = "\n" if num_ended == settings.num_requests else "\r"
            sys.stderr.write(f"{num_ended} of {settings.num_requests}{end}")

    return asyncio.run(run_load(settings, show))


def _told(run: LoadRun, format: str, output: str | None, plots: str | None) -> int:
    """Status 1 if any request failed, 2 if all did."""
    import msgspec

    from degarble.whole_file import write_whole
    from degarble_engine.bench.plots import distributions, timeline
    from degarble_engine.bench.summary import summarise
    from degarble_engine.bench.table import lines

    summary = summarise(run)
    if format == "json":
        text = msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n"
    else:
        text = "\n".join(lines(summary)) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(Path(output), text.encode())
    if plots is not None:
        folder = Path(plots)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "latencies.svg", distributions(run).encode())
        write_whole(folder / "timeline.svg", timeline(run).encode())
    return 0 if not summary.num_failed else 1 if summary.num_completed else 2
