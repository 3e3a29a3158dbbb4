"""Which module of a layer is at work, and what kind it is: the simulation asks when an operation comes by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from degarble_engine.numerics.attention import COMPUTE
from degarble_engine.numerics.tap import is_attention, is_experts, is_norm, is_router

ROOT, NORM, ROUTER, EXPERTS, ATTENTION, LINEAR, OTHER = (
    "root", "norm", "router", "experts", "attention", "linear", "other"
)  # fmt: skip


class Simulated(Protocol):
    """What listens."""

    def enter_norm(self, name: str, module: nn.Module, values: Tensor) -> Tensor:
        """The input that the norm is to read."""

    def leave_norm(self, name: str, output: Tensor) -> Tensor:
        """The output that it is to give."""

    def attend(self, name: str, *args: Any, **kwargs: Any) -> Tensor:
        """Attention, in full. [batch, tokens, num_heads, value_dim]"""


@dataclass(slots=True)
class Scope:
    """The stack of modules at work in one layer."""

    listener: Simulated | None = None
    stack: list[tuple[str, nn.Module, str]] = field(default_factory=list)
    weights: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Weights of this layer as lanes of one dtype hold them; a slice of stacked experts is another weight each time."""

    @property
    def kind(self) -> str:
        """Of the innermost module that is more than a plain container."""
        return next((kind for _, _, kind in reversed(self.stack) if kind != OTHER), ROOT if not self.stack else OTHER)

    @property
    def name(self) -> str:
        """Of the innermost module, relative to the layer; '' is the layer itself."""
        return self.stack[-1][0] if self.stack else ""

    @property
    def module(self) -> nn.Module | None:
        """The innermost module."""
        return self.stack[-1][1] if self.stack else None

    def expert_of(self, weight: Tensor) -> tuple[str, int] | None:
        """(parameter, number) of a slice of the stacked experts at work; None for anything else."""
        module = self.module
        for name, stacked in ({} if module is None else module._parameters).items():
            if stacked is None or stacked.ndim != 3 or weight.ndim != 2 or stacked.device != weight.device:
                continue
            if weight.untyped_storage().data_ptr() == stacked.untyped_storage().data_ptr():
                number, rest = divmod(weight.storage_offset() - stacked.storage_offset(), stacked.stride(0))
                return (name, number) if rest == 0 and 0 <= number < stacked.shape[0] else None
        return None

    @contextmanager
    def on(self, layer: nn.Module) -> Iterator[None]:
        """Follow the modules of a layer while it runs."""
        handles: list[Any] = []
        computing: list[nn.Module] = []
        for name, module in layer.named_modules():
            if not name:
                continue
            kind = kind_of(module)
            handles.append(module.register_forward_pre_hook(self._enter(name, kind)))
            handles.append(module.register_forward_hook(self._leave(name, kind), always_call=True))
            if kind == ATTENTION:
                setattr(module, COMPUTE, self._compute(name))
                computing.append(module)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for module in computing:
                delattr(module, COMPUTE)
            self.stack.clear()
            self.weights.clear()

    def _enter(self, name: str, kind: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
            self.stack.append((name, module, kind))
            if kind == NORM and self.listener is not None and args:
                with torch._C.DisableTorchFunction():
                    return (self.listener.enter_norm(name, module, args[0]), *args[1:])
            return None

        return hook

    def _leave(self, name: str, kind: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> Any:
            if self.stack:
                self.stack.pop()
            if kind == NORM and self.listener is not None and isinstance(output, Tensor):
                with torch._C.DisableTorchFunction():
                    return self.listener.leave_norm(name, output)
            return None

        return hook

    def _compute(self, name: str) -> Any:
        def compute(*args: Any, **kwargs: Any) -> Tensor:
            assert self.listener is not None
            with torch._C.DisableTorchFunction():
                return self.listener.attend(name, *args, **kwargs)

        return compute


def kind_of(module: nn.Module) -> str:
    """What a module is to the simulation."""
    tests = ((is_norm, NORM), (is_router, ROUTER), (is_experts, EXPERTS), (is_attention, ATTENTION))
    if isinstance(module, nn.Linear):
        return LINEAR
    return next((kind for test, kind in tests if test(module)), OTHER)
