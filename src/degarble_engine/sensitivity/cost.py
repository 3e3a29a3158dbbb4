"""What keeping a unit in a scheme costs: the KL divergence that its rounding alone would cause, to second order.

    cost = 1/2 mean over tokens of ( sum over modules of <dL/dy, y' - y> )^2

y is a module's output, y' what it gives with rounded weights on the same input; L as in backward_walk.py. A unit is what
engines fuse, and must have one scheme: q, k and v; gate and up; or all experts of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from degarble_engine.quantize.clip_search import search_grid
from degarble_engine.quantize.scheme import QuantScheme
from degarble_engine.quantize.site import Site
from degarble_engine.sensitivity.backward_walk import Call, LayerGradients


@torch.no_grad()
def cost_of(
    sites: Mapping[str, Sequence[Site]], found: Sequence[LayerGradients], scheme: QuantScheme, dtype: torch.dtype
) -> float:
    """Of one unit, in nats a token. `sites`: module path -> its matrices."""
    total, tokens = 0.0, 0
    layer = found[0].layer
    importance = {path: _importance([one.calls[path] for one in found if path in one.calls]) for path in sites}
    with _rounded(sites, importance, scheme, dtype):
        for one in found:
            leaning: Tensor | None = None
            for path in sites:
                call = one.calls.get(path)
                if call is None:
                    continue
                output = layer.get_submodule(path)(*call.arguments)
                output = output[0] if isinstance(output, tuple) else output
                change = ((output - call.output) * call.gradient).sum(-1)
                leaning = change if leaning is None else leaning + change
            if leaning is not None:
                total += float(leaning.double().square().sum()) / 2
            tokens += int(one.chunk.valid.sum())
    return total / max(tokens, 1)


def _importance(calls: Sequence[Call]) -> Tensor | None:
    """Mean square of every input; None for experts, whose tokens differ."""
    if not calls or is_routed(calls[0]):
        return None
    rows = [call.rows(call.arguments[0]) for call in calls]
    return torch.stack([one.square().mean(0) for one in rows]).mean(0)


def is_routed(call: Call) -> bool:
    """Whether the call is of fused experts, which get the routing as well."""
    return len(call.arguments) > 1


@contextmanager
def _rounded(
    sites: Mapping[str, Sequence[Site]],
    importance: Mapping[str, Tensor | None],
    scheme: QuantScheme,
    dtype: torch.dtype,
) -> Iterator[None]:
    """The rounded weights in place of the real ones, which come back."""
    real: list[tuple[Site, Tensor]] = []
    try:
        for path, own in sites.items():
            for site in own:
                weight = site.weight.float()
                real.append((site, site.weight.clone()))
                known = importance[path] if site.leaf == "weight" else None
                site.weight.copy_(search_grid(weight, scheme, dtype, known).round_all(weight))
        yield
    finally:
        for site, weight in real:
            site.weight.copy_(weight)
