"""All weights of a layer that can be judged: linears, routers, and experts one by one."""

from __future__ import annotations

from degarble_engine.attribution.expert_pair import expert_pairs
from degarble_engine.attribution.linear_pair import LinearPair, plain_pair
from degarble_engine.numerics.tap import is_norm
from degarble_engine.numerics.walk import LayerRun


def linear_pairs(reference: LayerRun, candidate: LayerRun) -> list[LinearPair]:
    """All linears, routers and experts that both layers have in one shape."""
    found: list[LinearPair] = []
    modules = dict(candidate.module.named_modules())
    for name, module in reference.module.named_modules():
        other = modules.get(name)
        if name in reference.taps.experts and other is not None:
            found += expert_pairs(name, module, other, reference, candidate)
        elif name in reference.taps.inputs and other is not None and not is_norm(module):
            pair = plain_pair(name, module, other, reference, candidate)
            found += [pair] if pair is not None else []
    return found
