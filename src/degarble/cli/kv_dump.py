"""`degarble kv compare-dump`: two dumped caches beside each other, or one live request beside its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from degarble.cli.joined import joined_module
from degarble.cli.output import write_text
from degarble.errors import UsageError

if TYPE_CHECKING:
    from degarble.checkpoint.tensor_data import Array
    from degarble.kvcache.dump import Difference, Dump

MAX_DUMP_BYTES = 8 << 30
LIVE_GROUP = "degarble.kv_models"
"""Entry points of packages that can run a model."""


def compare_dump(
    first: Annotated[str, typer.Argument(help="A .npy or .safetensors dump; with --model the pages of one request.")],
    second: Annotated[str | None, typer.Argument(help="What it should be.")] = None,
    layout: Annotated[
        str | None, typer.Option(help="Layout of the first: a name (NHD, HND, …) or axes with commas.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Judge one live request by the keys and values that this checkpoint gives. Needs the extra `engine`.",
            metavar="TARGET",
        ),
    ] = None,
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
    format: Annotated[
        str, typer.Option("--format", help="text or json; with --model also sarif, junit, markdown, github, html.")
    ] = "text",
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write there.", metavar="FILE")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Compare two dumped caches by layer, K or V, token, head and lane, and say what explains a difference.

    With --model one request's pages (docs/how-to/kv-dump.md has the file's form) are compared with what the checkpoint
    gives for its tokens, and the pattern of the mismatch is named.
    """
    if model is not None:
        if second is not None:
            raise UsageError("a second dump and --model: give one of the two")
        status: int = joined_module(LIVE_GROUP, "compare-dump").run(first, model, format, output, quiet)
        return status
    if second is None or layout is None:
        raise UsageError("give a second dump and --layout, or --model")
    from degarble.errors import LayoutMismatch
    from degarble.kvcache.boundary import Boundaries
    from degarble.kvcache.dump import compare_dumps, make_dump
    from degarble.kvcache.layout import read_layout

    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    sizes = {name: size for name, size in (("num_kv_heads", num_kv_heads), ("head_dim", head_dim)) if size is not None}
    try:
        mine = make_dump(_load(first, tensor), read_layout(layout), dict(sizes), _numbers("--table", table), num_tokens)
        other = make_dump(
            _load(second, second_tensor or tensor),
            read_layout(second_layout or layout),
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
