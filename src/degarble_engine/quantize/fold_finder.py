"""Which folds a layer has, found by running it: nothing here knows a family.

A norm's consumers are the modules that read the very tensor it gave, told by its address while all are alive. Whether
they are *all* that reads it is proved afterwards: a fold that changes what the layer computes is left out (fold.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from degarble_engine.numerics.tap import is_experts, is_norm
from degarble_engine.quantize.fold import Consumer, Fold, Producer
from degarble_engine.quantize.site import FUSED, Site

PARTS = 3
"""Matrices of a gated expert."""
UP, DOWN = "up_proj", "down_proj"
VALUE, LATENT, OUTPUT = "v_proj", "kv_b_proj", "o_proj"


@dataclass(frozen=True, slots=True)
class FoundFold:
    """A fold, and the module whose input tells how large its channels are."""

    fold: Fold
    read_by: str


@torch.no_grad()
def folds_of(
    layer: nn.Module,
    run: Callable[[], Any],
    sites: Mapping[str, Sequence[Site]],
    stored_dtype: Callable[[str], torch.dtype | None],
) -> list[FoundFold]:
    """All folds of a layer; `stored_dtype` tells the dtype in the file of a parameter, None where it has none."""
    found = []
    for path, readers in _readers(layer, run).items():
        fold = _from_norm(layer, path, readers, sites, stored_dtype(f"{path}.weight"))
        if fold is not None:
            found.append(FoundFold(fold, readers[0]))
    for path, module in layer.named_modules():
        for name, make in ((UP, _up_to_down), (VALUE, _value_to_output), (LATENT, _latent_to_output)):
            if isinstance(getattr(module, name, None), nn.Linear):
                fold = make(path, module, sites)
                if fold is not None:
                    found.append(FoundFold(fold, fold.consumers[0].path))
    return found


def _readers(layer: nn.Module, run: Callable[[], Any]) -> dict[str, list[str]]:
    """Norm -> modules that read what it gave."""
    alive: list[Tensor] = []
    given: dict[int, str] = {}
    readers: dict[str, list[str]] = {}

    def note_output(path: str) -> Any:
        def note(_: nn.Module, __: Any, output: Tensor) -> None:
            alive.append(output)
            given[output.data_ptr()] = path

        return note

    def note_input(path: str) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...]) -> None:
            owner = given.get(args[0].data_ptr()) if args and isinstance(args[0], Tensor) else None
            if owner is not None:
                readers.setdefault(owner, []).append(path)

        return note

    handles = []
    for path, module in layer.named_modules():
        if is_norm(module):
            handles.append(module.register_forward_hook(note_output(path)))
        elif is_experts(module) or _matrix_of(module) is not None:
            handles.append(module.register_forward_pre_hook(note_input(path)))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return readers


def _matrix_of(module: nn.Module) -> Tensor | None:
    """The weight of a linear, or of a router that is a module of its own."""
    weight = module._parameters.get("weight")
    return weight.data if weight is not None and weight.ndim == 2 else None


def _from_norm(
    layer: nn.Module,
    path: str,
    readers: Sequence[str],
    sites: Mapping[str, Sequence[Site]],
    stored: torch.dtype | None,
) -> Fold | None:
    norm = layer.get_submodule(path)
    gain = norm._parameters["weight"]
    if stored is None or gain is None or not any(one in sites for one in readers):
        return None
    consumers = []
    for reader in readers:
        module = layer.get_submodule(reader)
        weight = module._parameters.get(FUSED) if is_experts(module) else module._parameters.get("weight")
        if weight is None or weight.shape[-1] != gain.shape[0]:
            return None
        if is_experts(module) and len(sites.get(reader, ())) != PARTS * weight.shape[0]:
            return None  # experts that stay plain lie in the file one by one
        consumers.append(Consumer(path=reader, weight=weight.data, is_quantized=reader in sites))
    producer = Producer(path=path, weight=gain.data, stored=stored, adds_one=_adds_one(norm))
    size = gain.shape[0]
    return Fold(producer=producer, consumers=tuple(consumers), channel_of=torch.arange(size), channels=size)


def _adds_one(norm: nn.Module) -> bool:
    """Whether a gain of zeros still lets something through: norms of 1 + w."""
    gain = norm._parameters["weight"]
    assert gain is not None
    kept = gain.data.clone()
    gain.data.zero_()
    try:
        return bool(norm(torch.ones(1, gain.shape[0])).any())
    finally:
        gain.data.copy_(kept)


def _pair(path: str, parent: nn.Module, names: tuple[str, str], sites: Mapping[str, Sequence[Site]]) -> Any:
    """Both linears and the consumer, if both are quantised whole."""
    first, second = (getattr(parent, name, None) for name in names)
    paths = [f"{path}.{name}" if path else name for name in names]
    if not isinstance(first, nn.Linear) or not isinstance(second, nn.Linear) or not all(one in sites for one in paths):
        return None
    return first, second, paths[0], Consumer(path=paths[1], weight=second.weight.data, is_quantized=True)


def _up_to_down(path: str, parent: nn.Module, sites: Mapping[str, Sequence[Site]]) -> Fold | None:
    pair = _pair(path, parent, (UP, DOWN), sites)
    if pair is None or not hasattr(parent, "gate_proj") or pair[0].out_features != pair[1].in_features:
        return None
    size = pair[0].out_features
    return _rows_fold(pair, None, torch.arange(size), size)


def _value_to_output(path: str, parent: nn.Module, sites: Mapping[str, Sequence[Site]]) -> Fold | None:
    pair = _pair(path, parent, (VALUE, OUTPUT), sites)
    head = getattr(parent, "head_dim", None)
    if pair is None or not isinstance(head, int) or pair[0].out_features % head or pair[1].in_features % head:
        return None
    heads, shared = pair[1].in_features // head, pair[0].out_features // head
    if not shared or heads % shared:
        return None
    by_head = torch.arange(heads) // (heads // shared)
    channel_of = (by_head[:, None] * head + torch.arange(head)).reshape(-1)
    return _rows_fold(pair, None, channel_of, pair[0].out_features)


def _latent_to_output(path: str, parent: nn.Module, sites: Mapping[str, Sequence[Site]]) -> Fold | None:
    """Rows of kv_b_proj are, head by head, the part of the key without position, then the value."""
    pair = _pair(path, parent, (LATENT, OUTPUT), sites)
    value, key = getattr(parent, "v_head_dim", None), getattr(parent, "qk_nope_head_dim", None)
    if pair is None or not isinstance(value, int) or not isinstance(key, int):
        return None
    heads = pair[1].in_features // value
    if pair[0].out_features != heads * (key + value):
        return None
    rows = (torch.arange(heads)[:, None] * (key + value) + key + torch.arange(value)).reshape(-1)
    size = heads * value
    return _rows_fold(pair, rows, torch.arange(size), size)


def _rows_fold(pair: Any, rows: Tensor | None, channel_of: Tensor, channels: int) -> Fold:
    first, _, path, consumer = pair
    bias = None if first.bias is None else first.bias.data
    producer = Producer(path=path, weight=first.weight.data, bias=bias, rows=rows)
    return Fold(producer=producer, consumers=(consumer,), channel_of=channel_of, channels=channels)
