"""One live request as a `.safetensors` file: its tokens, its block table, and the pages as they lie in the cache.

    token_ids            [tokens] integers, as the engine holds them
    block_table          [columns] block ids; -1 where a block left a sliding window
    block_ids            [pages] which blocks the pages are, in their order; without it the pages are the whole pool
    position_ids         [tokens] what the engine rotated by; optional
    layers.N.k, .v       pages of layer N in the declared layout; or one tensor layers.N.kv, or layers.N.latent (MLA)
    layers.N.k_scale, .v_scale    one number, or one a head: a stored value times it is what attention reads; optional

    metadata             format = degarble.kv-request.1, layout = NHD (a name of the catalogue, or axes with commas),
                         num_kv_heads and head_dim where the layout merges them with another axis

Read through our own reader: nothing is unpickled, and sizes are judged before anything is allocated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from degarble.checkpoint.folder import LocalFile
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.safetensors import read_header
from degarble.checkpoint.tensor_data import Array, TensorReader
from degarble.errors import LayoutMismatch, MalformedFile
from degarble.kvcache.dump import Dump, make_dump
from degarble.kvcache.layout import KVLayout, read_layout

FORMAT = "degarble.kv-request.1"
MAX_TOKENS = 1 << 20
PARTS = ("k", "v", "kv", "latent")
_PAGES = re.compile(r"layers\.(\d{1,5})\.(k|v|kv|latent)")
FLOATS = ("F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """A request's tokens and where its rows are. Pages are read when a layer is asked for."""

    path: str
    token_ids: tuple[int, ...]
    position_ids: tuple[int, ...] | None
    columns: tuple[int, ...]
    """Column of the block table -> page of the file; -1 where there is none."""
    block_table: tuple[int, ...]
    layout: KVLayout
    sizes: Mapping[str, int]
    pages: Mapping[int, Mapping[str, TensorInfo]]
    """Layer -> part -> tensor."""
    scales: Mapping[tuple[int, str], Tensor]
    reader: TensorReader

    @property
    def num_layers(self) -> int:
        """Layers that were dumped, the highest number plus one."""
        return max(self.pages) + 1

    @property
    def block_size(self) -> int:
        """Rows of a block."""
        return self.dump(min(self.pages), next(iter(self.pages[min(self.pages)]))).sizes["block_size"]

    @property
    def dtype(self) -> torch.dtype:
        """What the cache stores."""
        info = next(iter(self.pages[min(self.pages)].values()))
        return {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn,
                "F8_E5M2": torch.float8_e5m2}[info.dtype]  # fmt: skip

    def held(self) -> Tensor:
        """[tokens] bool: rows that a page of the file holds."""
        by_column = torch.tensor([page >= 0 for page in self.columns])
        return by_column.repeat_interleave(self.block_size)[: len(self.token_ids)]

    def dump(self, layer: int, part: str) -> Dump:
        """One tensor of pages with its layout. Raises LayoutMismatch where the two do not fit."""
        info = self.pages[layer][part]
        table = [max(page, 0) for page in self.columns]
        return make_dump(self.reader.read(info), self.layout, dict(self.sizes), table, len(self.token_ids))

    def rows(self, layer: int) -> dict[str, Tensor]:
        """`k` and `v` [tokens, num_kv_heads, head_dim], or `latent` [tokens, 1, lanes], with scales applied, in fp32."""
        found: dict[str, Tensor] = {}
        for part in self.pages[layer]:
            rows = self.dump(layer, part).rows()[0]  # [kv, tokens, heads, lanes]
            for name, own in zip(("k", "v") if part == "kv" else (part,), rows, strict=True):
                found[name] = self.scaled(layer, name, own)
        return found

    def scaled(self, layer: int, name: str, stored: Array) -> Tensor:
        """What attention reads of stored rows [tokens, heads, lanes]."""
        values = torch.from_numpy(np.ascontiguousarray(stored.astype(np.float32)))
        scale = self.scales.get((layer, name))
        return values if scale is None else values * scale.reshape(1, -1, 1)


def read_request(path: str) -> LiveRequest:
    """Open a file. Raises TargetError or MalformedFile that names the tensor, what was expected and what was found."""
    source = LocalFile(path, "safetensors")
    (name,) = source.files()
    header = read_header(source, name)
    if header.problems:
        raise header.problems[0]
    reader = TensorReader(source)
    told = header.metadata.get("format")
    if told != FORMAT:
        raise MalformedFile(name, "__metadata__.format", FORMAT, repr(told))
    tensors = header.tensors
    tokens = _integers(name, tensors, reader, "token_ids", MAX_TOKENS)
    table = _integers(name, tensors, reader, "block_table", MAX_TOKENS)
    if not tokens or not table:
        raise MalformedFile(name, "token_ids, block_table", "both, with at least one entry", "none")
    pages = _pages(name, tensors)
    block_ids = _integers(name, tensors, reader, "block_ids", 1 << 24)
    positions = _integers(name, tensors, reader, "position_ids", MAX_TOKENS)
    if positions is not None and len(positions) != len(tokens):
        raise MalformedFile(name, "position_ids", f"{len(tokens)} entries, one a token", str(len(positions)))
    try:
        layout = read_layout(header.metadata.get("layout", ""))
        names: tuple[str, ...] = ("num_kv_heads", "head_dim")
        sizes = {key: int(header.metadata[key]) for key in names if key in header.metadata}
    except (ValueError, LayoutMismatch) as error:
        raise MalformedFile(name, "__metadata__", "a known layout and sizes in digits", str(error)) from None
    request = LiveRequest(
        path=path,
        token_ids=tokens,
        position_ids=positions,
        columns=_columns(name, table, block_ids),
        block_table=table,
        layout=layout,
        sizes=sizes,
        pages=pages,
        scales=_scales(name, tensors, reader, pages),
        reader=reader,
    )
    _require_fit(name, request)
    return request


def _integers(
    file: str, tensors: Mapping[str, TensorInfo], reader: TensorReader, name: str, most: int
) -> tuple[int, ...] | None:
    info = tensors.get(name)
    if info is None:
        return None
    if info.dtype not in ("I32", "I64", "U32") or len(info.shape) != 1 or info.shape[0] > most:
        raise MalformedFile(file, name, f"at most {most} integers in one dimension", f"{info.dtype} {list(info.shape)}")
    return tuple(int(one) for one in reader.read(info))


def _pages(file: str, tensors: Mapping[str, TensorInfo]) -> dict[int, dict[str, TensorInfo]]:
    found: dict[int, dict[str, TensorInfo]] = {}
    for name, info in tensors.items():
        match = _PAGES.fullmatch(name)
        if match is None:
            continue
        if info.dtype not in FLOATS:
            raise MalformedFile(
                file, name, f"pages in {', '.join(FLOATS)}", f"{info.dtype}: codes of other caches are not read"
            )
        found.setdefault(int(match[1]), {})[match[2]] = info
    if not found:
        raise MalformedFile(file, "header", "tensors layers.N.k and .v, .kv or .latent", ", ".join(list(tensors)[:5]))
    wanted = set(next(iter(found.values())))
    if wanted not in ({"k", "v"}, {"kv"}, {"latent"}):
        raise MalformedFile(file, f"layers.{min(found)}", "k and v, kv, or latent", ", ".join(sorted(wanted)))
    for layer, parts in found.items():
        if set(parts) != wanted:
            raise MalformedFile(
                file, f"layers.{layer}", ", ".join(sorted(wanted)), ", ".join(sorted(parts)) or "nothing"
            )
    return found


def _columns(file: str, table: tuple[int, ...], block_ids: tuple[int, ...] | None) -> tuple[int, ...]:
    if block_ids is None:
        return table
    place = {block: page for page, block in enumerate(block_ids)}
    missing = [block for block in table if block >= 0 and block not in place]
    if missing:
        raise MalformedFile(file, "block_ids", f"block {missing[0]}, which block_table names", "no such page")
    return tuple(place.get(block, -1) for block in table)


def _scales(
    file: str,
    tensors: Mapping[str, TensorInfo],
    reader: TensorReader,
    pages: Mapping[int, Mapping[str, TensorInfo]],
) -> dict[tuple[int, str], Tensor]:
    found = {}
    for layer in pages:
        for part in ("k", "v", "latent"):
            info = tensors.get(f"layers.{layer}.{part}_scale")
            if info is None:
                continue
            if info.dtype not in FLOATS[:3] or prod(info.shape) > 1 << 16:
                raise MalformedFile(file, info.name, "one float, or one a head", f"{info.dtype} {list(info.shape)}")
            found[layer, part] = torch.from_numpy(reader.read(info).astype(np.float32).reshape(-1))
    return found


def _require_fit(file: str, request: LiveRequest) -> None:
    """The pages fit the layout, the table fits the pages, the tokens fit the table."""
    first = request.pages[min(request.pages)]
    for layer, parts in request.pages.items():
        for part, info in parts.items():
            if info.shape != first[part].shape or info.dtype != first[part].dtype:
                raise MalformedFile(file, info.name, f"{first[part].dtype} {list(first[part].shape)} as in the first "
                                    f"layer", f"{info.dtype} {list(info.shape)} in layer {layer}")  # fmt: skip
    if max(request.columns) < 0:
        raise MalformedFile(file, "block_table", "at least one block", "only -1")
    try:
        for part in first:
            rows = request.dump(min(request.pages), part)
            expected = 2 if part == "kv" else 1
            if rows.rows().shape[:2] != (1, expected):
                raise LayoutMismatch(f"layout {request.layout.name} does not hold {part} of one layer")
        heads = {len(scale) for scale in request.scales.values()} - {1, rows.rows().shape[3]}
    except LayoutMismatch as error:
        raise MalformedFile(file, f"layers.{min(request.pages)}", "pages in the declared layout", str(error)) from None
    if heads:
        raise MalformedFile(file, "scales", f"one, or one for each of {rows.rows().shape[3]} heads", str(min(heads)))


def write_request(
    path: Path,
    *,
    token_ids: list[int],
    block_table: list[int],
    pages: Mapping[str, Tensor],
    layout: str,
    block_ids: list[int] | None = None,
    position_ids: list[int] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a file that `read_request` reads; `pages` by name: layers.0.k, layers.0.k_scale."""
    from safetensors.torch import save

    from degarble.whole_file import write_whole

    tensors = {name: values.contiguous() for name, values in pages.items()}
    for name, ids in (("token_ids", token_ids), ("block_table", block_table), ("block_ids", block_ids),
                      ("position_ids", position_ids)):  # fmt: skip
        if ids is not None:
            tensors[name] = torch.tensor(ids, dtype=torch.int64)
    write_whole(path, save(tensors, {"format": FORMAT, "layout": layout, **(metadata or {})}))
