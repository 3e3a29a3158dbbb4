"""A decoder layer in the arithmetic of an engine: the family's own code in fp32, rounded where the engine rounds.

Every operation of torch comes by here while a layer runs (a function mode), and the scope says which module it belongs
to. So the place of a number beyond the range follows without a word about families:

    in the layer itself      a sum of [batch, tokens, hidden]        residual add
    in a linear or experts   F.linear, matmul                        input, sums, output
    in a feed-forward block  anything elementwise                    gate x up (the input of the linear that follows)
    in a norm                nothing but the gain; sum of squares    exact zeros if it overflows, no NaN
    in attention             scores, accumulators                    see attention.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from degarble_engine.overflow.attention import Attention
from degarble_engine.overflow.ledger import CLAMPED, ZEROS, Event, Ledger
from degarble_engine.overflow.scope import ATTENTION, EXPERTS, NORM, ROOT, ROUTER, Scope
from degarble_engine.overflow.switches import LARGEST, Switches, rounded

PRODUCTS = frozenset({"linear", "matmul", "rmatmul", "bmm", "baddbmm", "addmm", "mm", "einsum"})
SUMS = frozenset({"add", "radd", "iadd"})
ELEMENTWISE = SUMS | frozenset({
    "sub", "rsub", "isub", "mul", "rmul", "imul", "multiply", "div", "rdiv", "truediv", "rtruediv", "silu", "gelu",
    "relu", "tanh", "sigmoid", "softmax", "pow", "square", "exp", "clamp", "softplus", "index_add",
})  # fmt: skip
BLOCK_ENDS = frozenset({"o_proj", "out_proj", "down_proj", "wo", "w2", "fc2", "c_proj", "dense", "dense_4h_to_h"})
"""Linears that end a block: engines with a stream in fp32 have them write it (exllamav3: out_dtype = torch.float)."""
SUM_STEP = 32
"""Inputs summed exactly before the running sum of an fp16 GEMM is rounded: two steps of a tensor core."""
Watch = Callable[[str, Tensor, tuple[str, int] | None], None]
"""(linear or experts, input, parameter and number of the expert)."""


class Simulation(TorchFunctionMode):
    """One lane in one layer after the other."""

    def __init__(self, switches: Switches, scope: Scope, ledger: Ledger, on_input: Watch | None = None) -> None:
        super().__init__()
        self.switches = switches
        self.scope = scope
        self.ledger = ledger
        self.on_input = on_input
        self.attention = Attention(switches, ledger)
        self._unrounded: tuple[Tensor, Tensor] | None = None
        """A residual sum as stored, and as the next norm reads it."""
        self._silent: Tensor | None = None
        """Tokens whose norm gives zeros."""
        self._writer = ""
        """The last linear: a residual add is its doing."""
        self._unnamed: list[Event] = []
        """Events between linears, which get the name of the next one."""

    def run(self, forward: Callable[[], Tensor]) -> Tensor:
        """One layer."""
        self._writer, self._silent, self._unrounded = "", None, None
        self._unnamed = []
        self.scope.listener = self
        try:
            with self:
                output = forward()
        finally:
            self.scope.listener = None
        self.ledger.close_layer()
        return output

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        raw = getattr(func, "__name__", "")
        name = raw.strip("_")
        if name in PRODUCTS:
            return self._product(func, name, args, kwargs)
        if name not in ELEMENTWISE:
            return func(*args, **kwargs)
        if self.scope.kind == NORM and not self._is_gain_in_model_dtype(name, args):
            return func(*args, **kwargs)
        if self.scope.kind == NORM:
            gain = self._gain()
            args = [one if one is gain else self._as_given(one, self.switches.norm_weight_mul) for one in args]
        output = func(*args, **kwargs)
        if not isinstance(output, Tensor) or not output.is_floating_point() or output.ndim == 0:
            return output
        found = self._placed(name, output)
        return output.copy_(found) if raw.endswith("_") and not raw.startswith("_") else found

    def _as_given(self, value: Any, dtype: torch.dtype) -> Any:
        return rounded(value, dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    def _gain(self) -> Tensor | None:
        module = self.scope.module
        return None if module is None else module._parameters.get("weight")

    def _is_gain_in_model_dtype(self, name: str, args: Any) -> bool:
        gain = self._gain()
        return name in ("mul", "rmul") and gain is not None and any(one is gain for one in args)

    def _placed(self, name: str, output: Tensor) -> Tensor:
        """An elementwise result, rounded and noted where it belongs."""
        switches, scope = self.switches, self.scope
        if scope.kind == NORM:
            return output
        if scope.kind == ROOT:
            is_stream = name in SUMS and output.ndim == 3
            dtype = switches.residual if is_stream else switches.activation
            place = "residual add" if is_stream else "beside the residual stream"
            stored = self._settled(output, dtype, self._writer, place)
            if is_stream:
                self.ledger.peak(output, self._writer, place)
                if switches.residual_add is not switches.residual:
                    self._unrounded = stored, output
            return stored
        if scope.kind == ROUTER:
            return self._settled(output, switches.router, scope.name, "router")
        known = len(self.ledger.events)
        place = "beside attention" if scope.kind == ATTENTION else "gate x up"
        found = self._settled(output, switches.activation, scope.name, place)
        self._unnamed += self.ledger.events[known:]
        return found

    def _settled(self, values: Tensor, dtype: torch.dtype, module: str, place: str) -> Tensor:
        return self.ledger.finite(rounded(values, dtype), values, module, place)

    def _product(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        scope, switches = self.scope, self.switches
        is_router = scope.kind == ROUTER
        module = scope.name or self._writer
        half_sums = switches.gemm_acc is torch.float16 and not is_router
        given = switches.router if is_router else torch.float16 if half_sums else switches.activation
        first = args[0]
        self._show_input(name, module, args)
        if name == "linear":
            self._name_events(module)
            self.ledger.peak(first, module, "input")
            first = self._settled(first, given, module, "input")
            weight, bias = args[1], args[2] if len(args) > 2 else kwargs.get("bias")
            before = self._linear(first, self._weight(weight), bias, half_sums)
        else:
            before = func(*[self._as_given(one, given) for one in args], **kwargs)
        widens = self.switches.residual is torch.float32 and module.rpartition(".")[2] in BLOCK_ENDS and not half_sums
        kept = torch.float32 if widens else given
        output = self._settled(before, kept, module, "router" if is_router else "output")
        if not is_router:
            self.ledger.peak(before, module, "output")
            self._writer = module
        return output

    def _show_input(self, name: str, module: str, args: Any) -> None:
        """To whoever watches: of linears, and of every expert by itself, however its family multiplies."""
        if self.on_input is None or len(args) < 2 or not isinstance(args[1], Tensor):
            return
        expert = self.scope.expert_of(args[1]) if self.scope.kind == EXPERTS else None
        if expert is not None or name == "linear":
            self.on_input(module, args[0], expert)

    def _name_events(self, linear: str) -> None:
        for event in self._unnamed:
            if linear.rpartition(".")[0] == event.module or self.scope.kind == EXPERTS:
                event.module = linear
        self._unnamed = []

    def _weight(self, weight: Tensor) -> Tensor:
        if self.switches.model is torch.float32:
            return weight
        key = id(weight), self.switches.model
        known = self.scope.weights.get(key)
        if known is None or known[0].data_ptr() != weight.data_ptr():
            known = self.scope.weights[key] = weight, rounded(weight, self.switches.model)
        return known[1]

    def _linear(self, values: Tensor, weight: Tensor, bias: Tensor | None, half_sums: bool) -> Tensor:
        if not half_sums:
            return nn.functional.linear(values, weight, bias)
        running = torch.zeros(*values.shape[:-1], weight.shape[0])
        for start in range(0, weight.shape[1], SUM_STEP):
            part = values[..., start : start + SUM_STEP] @ weight[:, start : start + SUM_STEP].T
            running = rounded(running + part, torch.float16)
        return running if bias is None else running + bias

    def enter_norm(self, name: str, module: nn.Module, values: Tensor) -> Tensor:
        """What the norm reads; whose squares overflow is remembered until it leaves."""
        if self._unrounded is not None and values is self._unrounded[0]:
            values = torch.where(self._unrounded[0] == 0, self._unrounded[0], self._unrounded[1])
        if self.switches.clamp:
            values = self._clamped(name, values)
        squares = values.float().pow(2).sum(-1)
        if values.ndim == 3:
            self.ledger.peak_of_tokens(squares, name, "sum of squares")
        self._silent = None
        if self.switches.norm_acc is torch.float16:
            self._silent = squares > LARGEST[torch.float16]
            sizes = self.ledger.by_token(squares[..., None])
            if sizes is not None:
                self.ledger.note(sizes > LARGEST[torch.float16], sizes, name, "sum of squares", ZEROS)
        return values

    def _clamped(self, name: str, values: Tensor) -> Tensor:
        limit = LARGEST[torch.float16]
        sizes = self.ledger.by_token(values)
        if sizes is not None:
            self.ledger.note(sizes > limit, sizes, name, "input held at the end of the range", CLAMPED)
        return values.clamp(-limit, limit)

    def leave_norm(self, name: str, output: Tensor) -> Tensor:
        """Rounded once, after the gain."""
        if self._silent is not None:
            output = output.masked_fill(self._silent[..., None], 0.0)
            self._silent = None
        self.ledger.peak(output, name, "output")
        return self._settled(output, self.switches.activation, name, "output")

    def attend(self, name: str, *args: Any, **kwargs: Any) -> Tensor:
        """See attention.py."""
        _, query, key, value, mask = args
        return self.attention.run(name, query, key, value, mask, **kwargs)
