"""`degarble kv lint|stress|compare-dump`: layouts, allocators and dumps of KV caches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from degarble.cli.output import destinations, require_fail_on, write_report, write_text
from degarble.errors import UsageError

if TYPE_CHECKING:
    from degarble.checkpoint.tensor_data import Array
    from degarble.kvcache.dump import Difference, Dump
    from degarble.kvcache.stress import StressResult
    from degarble.kvcache.stress_memory import Setting

MIB = 1 << 20
MAX_DUMP_BYTES = 8 << 30

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


def compare_dump(
    first: Annotated[str, typer.Argument(help="A .npy or .safetensors dump.")],
    second: Annotated[str, typer.Argument(help="What it should be.")],
    layout: Annotated[str, typer.Option(help="Layout of the first: a name (NHD, HND, …) or axes with commas.")],
    second_layout: Annotated[str | None, typer.Option(help="Layout of the second, if another.")] = None,
    tensor: Annotated[
        str | None, typer.Option(help="Tensor of a .safetensors file; the only one if not given.")
    ] = None,
    second_tensor: Annotated[str | None, typer.Option(help="The same for the second, if another.")] = None,
    table: Annotated[str | None, typer.Option(help="Block table of the first, 3,7,5; all slots if not given.")] = None,
    second_table: Annotated[str | None, typer.Option(help="Block table of the second.")] = None,
    num_tokens: Annotated[int | None, typer.Option(help="Tokens to compare.", min=1)] = None,
    num_kv_heads: Annotated[
        int | None, typer.Option(help="For layouts that merge heads with another axis.", min=1)
    ] = None,
    head_dim: Annotated[int | None, typer.Option(help="For layouts that merge head_dim.", min=1)] = None,
    atol: Annotated[float, typer.Option(help="Absolute tolerance; 0 asks for equal values.", min=0)] = 0.0,
    chunk: Annotated[int | None, typer.Option(help="Tokens of a prefill chunk, to match the first bad.", min=1)] = None,
    window: Annotated[int | None, typer.Option(help="Sliding window in tokens, to match it.", min=1)] = None,
    rejected: Annotated[str | None, typer.Option(help="Positions at which drafts were rejected, 12,40.")] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write there.", metavar="FILE")] = None,
) -> int:
    """Compare two dumped caches by layer, K or V, token, head and lane, and say what explains a difference."""
    from degarble.errors import LayoutMismatch
    from degarble.kvcache.boundary import Boundaries
    from degarble.kvcache.dump import compare_dumps, make_dump

    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    sizes = {name: size for name, size in (("num_kv_heads", num_kv_heads), ("head_dim", head_dim)) if size is not None}
    try:
        mine = make_dump(_load(first, tensor), _layout(layout), dict(sizes), _numbers("--table", table), num_tokens)
        other = make_dump(
            _load(second, second_tensor or tensor),
            _layout(second_layout or layout),
            dict(sizes),
            _numbers("--table", second_table or table),
            num_tokens,
        )
        known = Boundaries(
            chunk_size=chunk,
            windows=() if window is None else (window,),
            rejections=tuple(_numbers("--rejected", rejected) or ()),
        )
        difference = compare_dumps(mine, other, atol=atol, known=known)
    except LayoutMismatch as error:
        raise UsageError(str(error)) from None
    except MemoryError:
        raise UsageError("the dumps do not fit into memory") from None
    write_text(_shown(difference, mine, first, second, format), output)
    return int(difference is not None)


def _layout(text: str) -> Any:
    from degarble.kvcache.layout import find_layout

    return find_layout([axis.strip() for axis in text.split(",")] if "," in text else text)


def _numbers(option: str, text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"{option} {text}: block ids or positions with commas, such as 3,7,5")
    return [int(part) for part in parts]


def _load(path: str, tensor: str | None) -> Array:
    """An array from a file. Never a pickle."""
    import os

    import numpy as np

    try:
        if os.path.getsize(path) > MAX_DUMP_BYTES:
            raise UsageError(f"{path}: at most {MAX_DUMP_BYTES} bytes are read")
        if path.endswith(".npy"):
            loaded: Array = np.load(path, mmap_mode="r", allow_pickle=False)
            if loaded.dtype.kind not in "fiub":
                raise UsageError(f"{path}: holds {loaded.dtype}, expected numbers")
            return loaded
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path}: no .npy array: {error}") from None
    if not path.endswith(".safetensors"):
        raise UsageError(f"{path}: expected a .npy or .safetensors file")
    return _load_safetensors(path, tensor)


def _load_safetensors(path: str, tensor: str | None) -> Array:
    from degarble.checkpoint.folder import LocalFile
    from degarble.checkpoint.safetensors import read_header
    from degarble.checkpoint.tensor_data import TensorReader

    source = LocalFile(path, "safetensors")
    (name,) = source.files()
    tensors = read_header(source, name).tensors
    names = sorted(tensors)
    if tensor is None and len(names) == 1:
        tensor = names[0]
    if tensor not in tensors:
        raise UsageError(f"{path}: name one of its tensors with --tensor: {', '.join(names[:10])}")
    return TensorReader(source).read(tensors[tensor])


def _shown(difference: Difference | None, mine: Dump, first: str, second: str, format: str) -> str:
    import msgspec

    from degarble.version import __version__

    shape = list(mine.rows().shape)
    if format == "json":
        document = {
            "schema_version": 1,
            "tool": {"name": "degarble", "version": __version__},
            "command": "kv compare-dump",
            "status": "ok" if difference is None else "findings",
            "first": first,
            "second": second,
            "shape": shape,
            "difference": None if difference is None else msgspec.to_builtins(difference),
        }
        return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"
    if difference is None:
        return f"equal: [layer, kv, token, head, dim] = {shape}\n"
    one = difference
    return (
        f"different: {one.num_different:,} of {one.num_elements:,} elements, at most by {one.max_abs_difference:.6g}\n"
        f"first at layer {one.layer}, {'KV'[one.part]}, token {one.token}, head {one.head}, dim {one.dim}: "
        f"{one.found:.6g}, the second has {one.expected:.6g}\n"
        f"explained by: {one.explanation or 'nothing that was tried (layouts, permutations, shifts, one factor)'}\n"
        f"{one.boundary + chr(10) if one.boundary else ''}"
    )
