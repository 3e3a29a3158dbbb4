"""Fused experts as pairs: gate, up and down of each, on the tokens that the *reference* sends there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from degarble.formats.interface import StoredModule
from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.numerics.walk import LayerRun

PARAMETERS = ("gate_up_proj", "down_proj")
Part = tuple[str, str, int, tuple[int, int] | None, Tensor]
"""(name, parameter, number of the part, rows of the parameter, input)."""


def expert_pairs(
    name: str, module: nn.Module, other: nn.Module, reference: LayerRun, candidate: LayerRun
) -> Iterator[LinearPair]:
    """All of one layer; gate and up are one where the family stores matrices [in, out]."""
    one, two = module._parameters, other._parameters
    if any(one.get(leaf) is None or two.get(leaf) is None or one[leaf].shape != two[leaf].shape for leaf in PARAMETERS):
        return
    tap = reference.taps.experts[name]
    is_transposed = _is_transposed(one, tap.hidden.shape[1])
    if is_transposed is None:
        return
    prefix = f"{reference.model.skeleton.layer_name(reference.index)}.{name}"
    stored = {leaf: list(candidate.model.weights.stored(f"{prefix}.{leaf}")) for leaf in PARAMETERS}
    count = one["gate_up_proj"].shape[0]
    for expert in range(count):
        routed = tap.hidden[(tap.experts == expert).any(1)].float()
        for leaf, fused, number, rows, inputs in _parts(module, expert, routed, is_transposed):
            yield LinearPair(
                name=f"{name}.{expert}.{leaf}",
                parameter=f"{prefix}.{fused}",
                stored=_of_expert(stored[fused], expert, number, count),
                expert=expert,
                rows=rows,
                reference=_matrix(one[fused], expert, rows, is_transposed),
                candidate=_matrix(two[fused], expert, rows, is_transposed),
                reference_bias=_bias(one, fused, expert, rows),
                candidate_bias=_bias(two, fused, expert, rows),
                input=inputs,
                transposed=is_transposed,
            )


def _is_transposed(one: Mapping[str, Any], hidden_size: int) -> bool | None:
    """[experts, 2 * width, hidden] and [experts, hidden, width], or both the other way round; None for neither."""
    up, down = one["gate_up_proj"].shape[1:], one["down_proj"].shape[1:]
    if up[1] == hidden_size and up[0] == 2 * down[1] and down[0] == hidden_size:
        return False
    if up[0] == hidden_size and up[1] == 2 * down[0] and down[1] == hidden_size:
        return True
    return None


def _parts(module: nn.Module, expert: int, routed: Tensor, is_transposed: bool) -> Iterator[Part]:
    parameters = module._parameters
    joint = _matrix(parameters["gate_up_proj"], expert, None, is_transposed)
    inner = nn.functional.linear(routed, joint, _bias(parameters, "gate_up_proj", expert, None))
    apply_gate = getattr(module, "_apply_gate", None)
    if apply_gate is not None:
        inner = apply_gate(inner)
    else:
        gate, up = inner.chunk(2, -1)
        inner = getattr(module, "act_fn", nn.functional.silu)(gate) * up
    width = joint.shape[0] // 2
    if is_transposed:
        yield "gate_up_proj", "gate_up_proj", 0, None, routed
    else:
        yield "gate_proj", "gate_up_proj", 0, (0, width), routed
        yield "up_proj", "gate_up_proj", 1, (width, 2 * width), routed
    yield "down_proj", "down_proj", 0, None, inner


def _matrix(parameter: Any, expert: int, rows: tuple[int, int] | None, is_transposed: bool) -> Tensor:
    """[out, in]"""
    found: Tensor = parameter.data[expert].float()
    if is_transposed:
        found = found.T.contiguous()
    return found if rows is None else found[slice(*rows)]


def _bias(parameters: Mapping[str, Any], fused: str, expert: int, rows: tuple[int, int] | None) -> Tensor | None:
    found = parameters.get(f"{fused}_bias")
    if found is None:
        return None
    values: Tensor = found.data[expert].float()
    return values if rows is None else values[slice(*rows)]


def _of_expert(stored: list[StoredModule], expert: int, part: int, count: int) -> StoredModule | None:
    """Stored modules come part by part, one for each expert or one for all."""
    if len(stored) in (1, 2) and count > 2:
        return stored[min(part, len(stored) - 1)]
    at = part * count + expert
    return stored[at] if at < len(stored) else None
