"""Taps on one decoder layer: what goes into and comes out of its linears and norms, attention, and the router's choice.

Names are relative to the layer (`self_attn.q_proj`). Rows are the valid tokens of the batch, padding left out:
[tokens, features]. Three linears that read one tensor share one copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from degarble_engine.numerics.attention import LISTENER, AttentionTap


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterTap:
    """One decision of a router."""

    logits: Tensor  # [tokens, experts]
    weights: Tensor  # [tokens, chosen]
    experts: Tensor  # [tokens, chosen] expert numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsTap:
    """One call of fused experts."""

    hidden: Tensor  # [tokens, hidden]
    experts: Tensor  # [tokens, chosen] expert numbers
    weights: Tensor  # [tokens, chosen]
    output: Tensor  # [tokens, hidden]


@dataclass(slots=True)
class Taps:
    """Everything noted in one run of one layer."""

    valid: Tensor  # [batch, tokens] bool
    inputs: dict[str, Tensor] = field(default_factory=dict)
    """Of linears and norms."""
    outputs: dict[str, Tensor] = field(default_factory=dict)
    """Of linears, norms, and the attention and feed-forward halves."""
    attention: dict[str, AttentionTap] = field(default_factory=dict)
    routers: dict[str, RouterTap] = field(default_factory=dict)
    experts: dict[str, ExpertsTap] = field(default_factory=dict)
    _shared: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def rows(self, values: Tensor) -> Tensor:
        """The valid tokens of [batch, tokens, …] or [batch * tokens, …], as [tokens, …]."""
        known = self._shared.get(id(values))
        if known is not None and known[0] is values:
            return known[1]
        flat = values.detach()
        if flat.ndim > 2 and flat.shape[:2] == self.valid.shape:
            flat = flat.flatten(0, 1)
        elif flat.ndim > 3 and flat.shape[1] == 1 and flat.shape[0] * flat.shape[2] == self.valid.numel():
            flat = flat.squeeze(1).flatten(0, 1)
        elif flat.shape[0] != self.valid.numel():
            return flat
        kept = flat[self.valid.flatten()]
        self._shared[id(values)] = (values, kept)
        return kept

    def _linear(self, name: str) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self.inputs[name] = self.rows(args[0])
            self.outputs[name] = self.rows(output)

        return note

    def _half(self, name: str) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            found = output[0] if isinstance(output, tuple) else output
            if isinstance(found, Tensor):
                self.outputs[name] = self.rows(found)

        return note

    def _router(self, name: str) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self.inputs[name] = self.rows(args[0])
            if isinstance(output, tuple) and len(output) == 3:
                logits, weights, experts = (self.rows(one) for one in output)
                self.routers[name] = RouterTap(logits=logits, weights=weights, experts=experts)
                self.outputs[name] = logits

        return note

    def _experts(self, name: str) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            hidden, experts, weights = (self.rows(one) for one in args[:3])
            self.experts[name] = ExpertsTap(hidden=hidden, experts=experts, weights=weights, output=self.rows(output))
            self.inputs[name], self.outputs[name] = hidden, self.rows(output)

        return note

    def _attention(self, name: str) -> Any:
        def listen(tap: AttentionTap) -> None:
            self.attention[name] = tap

        return listen

    @contextmanager
    def on(self, layer: nn.Module) -> Iterator[None]:
        """Listen while the layer runs."""
        handles = []
        listening = []
        for name, module in layer.named_modules():
            if isinstance(module, nn.Linear) or is_norm(module):
                handles.append(module.register_forward_hook(self._linear(name)))
            elif is_router(module):
                handles.append(module.register_forward_hook(self._router(name)))
            elif is_experts(module):
                handles.append(module.register_forward_hook(self._experts(name)))
            elif name and "." not in name:
                handles.append(module.register_forward_hook(self._half(name)))
            if is_attention(module):
                setattr(module, LISTENER, self._attention(name))
                listening.append(module)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for module in listening:
                delattr(module, LISTENER)
            self._shared.clear()


def is_norm(module: nn.Module) -> bool:
    """RMS and layer norms of all families, by the name of the class."""
    return "norm" in type(module).__name__.lower() and "weight" in module._parameters


def is_router(module: nn.Module) -> bool:
    """A gate that is more than a linear."""
    return "router" in type(module).__name__.lower() and not isinstance(module, nn.Linear)


def is_experts(module: nn.Module) -> bool:
    """All experts of a layer as stacked parameters."""
    stacked = module._parameters.get("down_proj")
    return stacked is not None and stacked.ndim == 3


def is_attention(module: nn.Module) -> bool:
    """A module that calls the attention function: it has the scaling."""
    return hasattr(module, "scaling") and hasattr(module, "layer_idx")
