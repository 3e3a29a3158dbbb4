"""`degarble kv lint|stress|compare-dump`: layouts, allocators and dumps of KV caches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from degarble.cli.joined import joined_commands
from degarble.cli.kv_dump import compare_dump
from degarble.cli.output import destinations, require_fail_on, write_report, write_text
from degarble.errors import UsageError

if TYPE_CHECKING:
    from degarble.kvcache.stress import StressResult
    from degarble.kvcache.stress_memory import Setting

MIB = 1 << 20
GROUP = "degarble.kv_commands"
"""Entry points of commands that other packages add to `degarble kv`."""

STRESS_EPILOG = """The allocator is made by the function, `function(num_blocks, block_size, **options)`; its methods are
described in degarble.kvcache.allocator. It runs in a process of its own, with your rights: name only code you trust.
Status 0: no invariant was broken; 1: one was, and the report has the shortest list of operations that breaks it; 2: it
could not be run."""

Format = Annotated[
    str | None, typer.Option("--format", help="text (default), json, sarif, junit, markdown, github or html.")
]
Output = Annotated[list[str] | None, typer.Option("--output", "-o", help="Write the report there.", metavar="FILE")]
FailOn = Annotated[str, typer.Option(help="error, warning, info or partial: what makes the status 1.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also notes, skips and their reasons.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="KV caches: layouts, allocators, dumps.", no_args_is_help=True)
    group.command("lint")(lint)
    group.command("stress", epilog=STRESS_EPILOG)(stress)
    group.command("compare-dump")(compare_dump)
    for command in joined_commands(GROUP):
        command.register(group)
    app.add_typer(group, name="kv")


def lint(
    declaration: Annotated[
        str, typer.Argument(help="A .json or .toml declaration, or a .jsonl trace (its first line).")
    ],
    measure: Annotated[
        bool, typer.Option("--measure", help="Also gather each declared access on this machine, and say how fast.")
    ] = False,
    fail_on: FailOn = "error",
    format: Format = None,
    output: Output = None,
    verbose: Verbose = False,
) -> int:
    """Judge declared layouts, heads, records and allocations: strides, ambiguity, 32-bit reach, bytes written."""
    from degarble.kv import lint as judge

    require_fail_on(fail_on)
    report = judge(declaration)
    if measure and report.failure is None:
        _measure(declaration)
    write_report(report, destinations(format, output), detail=int(verbose), keep_profile=False)
    return report.exit_code(fail_on)


def _measure(path: str) -> None:
    from degarble.checkpoint.folder import LocalFile
    from degarble.evidence.cache_declaration import KV_DECLARATION
    from degarble.kvcache.declaration import parse_declaration
    from degarble.kvcache.gather import told

    source = LocalFile(path, KV_DECLARATION)
    (name,) = source.files()
    for line in told(parse_declaration(source.read(name), name)):
        sys.stderr.write(f"degarble: {line}\n")


def stress(
    allocator: Annotated[
        str | None, typer.Argument(help="module:function or file.py:function; the package's own if not given.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Random lives.", min=1, max=100_000)] = 20,
    first_seed: Annotated[int, typer.Option(help="The first of them.", min=0)] = 0,
    operations: Annotated[int, typer.Option(help="Operations tried in each life.", min=1, max=100_000)] = 500,
    num_blocks: Annotated[int, typer.Option(help="Blocks of the pool.", min=1, max=1 << 20)] = 40,
    block_size: Annotated[int, typer.Option(help="Tokens of a block.", min=1, max=1 << 16)] = 16,
    window: Annotated[int | None, typer.Option(help="Sliding window in tokens.", min=1)] = None,
    host_blocks: Annotated[int, typer.Option(help="Blocks to swap to; 0: no swapping.", min=0, max=1 << 20)] = 0,
    plant: Annotated[
        str | None,
        typer.Option(help="Plant a fault in the package's own allocator; `list` shows them.", metavar="NAME"),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds, for an allocator that is given.", min=0.1)] = 600.0,
    memory: Annotated[int, typer.Option(help="Address space in MiB, for one that is given.", min=128)] = 4096,
    format: Format = None,
    output: Output = None,
    verbose: Verbose = False,
) -> int:
    """Run random lives of an allocator against a plain twin, and shrink what breaks it."""
    from degarble.kv import stress_report
    from degarble.kvcache.planted import PLANTED
    from degarble.kvcache.stress_memory import Setting

    if plant == "list":
        shown = [f"{name:<16} {(kind.__doc__ or '').splitlines()[0]}" for name, kind in PLANTED.items()]
        write_text("\n".join(shown) + "\n", None)
        return 0
    if plant is not None and (allocator is not None or plant not in PLANTED):
        raise UsageError(f"--plant {plant}: one of {', '.join(PLANTED)}, without an allocator of your own")
    setting = Setting(num_blocks=num_blocks, block_size=block_size, window=window, num_host_blocks=host_blocks)
    lives = range(first_seed, first_seed + seeds)
    places = destinations(format, output)
    result = _run_stress(allocator, plant, setting, lives, operations, (timeout, memory * MIB))
    counts = ", ".join(f"{kind} {count:,}" for kind, count in sorted(result.by_kind.items()))
    sys.stderr.write(
        f"degarble: {result.num_seeds} seeds, {result.num_operations:,} operations ({counts}), "
        f"{result.num_rows_read:,} rows read back\n"
    )
    report = stress_report(allocator or "degarble's own", result)
    write_report(report, places, detail=int(verbose), keep_profile=False)
    return report.exit_code()


def _run_stress(
    allocator: str | None,
    plant: str | None,
    setting: Setting,
    lives: range,
    operations: int,
    limits: tuple[float, int],
) -> StressResult:
    from degarble.kvcache.allocator import ManagedAllocator
    from degarble.kvcache.block_manager import BlockManager
    from degarble.kvcache.foreign_allocator import stress_foreign
    from degarble.kvcache.planted import faulty
    from degarble.kvcache.stress import stress as run

    if allocator is not None:
        return stress_foreign(
            allocator,
            setting,
            seeds=lives,
            num_operations=operations,
            timeout_seconds=limits[0],
            memory_bytes=limits[1],
        )

    def make(one: Setting) -> ManagedAllocator:
        manager = BlockManager if plant is None else faulty(plant, 0)
        return ManagedAllocator(
            one.num_blocks, one.block_size, window=one.window, num_host_blocks=one.num_host_blocks, manager=manager
        )

    return run(make, setting, seeds=lives, num_operations=operations)
