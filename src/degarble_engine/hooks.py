"""`watch(model)`: the collapse detector as forward hooks, for any torch model, with a word when nothing reaches it.

    with watch(model) as watcher:
        model.generate(…)
    for alarm in watcher.alarms(): …
    watcher.silence()           # None, or why no number can be trusted

A hook is Python code: torch.compile may trace it away, and a replayed CUDA graph never calls it. The published alarm
(mean |output| < 1e-5) then stays quiet for ever. So calls are counted: a watched model that ran (its own forward is counted
where that is possible, and the caller may say how many steps there were) with fewer calls of its blocks is reported as
silenced, not as healthy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

MIN_MEAN_ABS = 1e-5
"""Of the incident's alarm; absolute, so that it needs no reference."""
MAX_PEER_RATIO = 0.08
"""Of the median of the same block in the neighbouring layers: the model case fell by 92 %."""
BLOCKS = ("self_attn", "attention", "attn", "mlp", "feed_forward", "block_sparse_moe", "moe")
NEIGHBOURS = 3


@dataclass(slots=True)
class Seen:
    """Running numbers of one block."""

    calls: int = 0
    values: int = 0
    total: float = 0.0
    square: float = 0.0
    mean_abs: float = 0.0
    non_finite: int = 0

    def add(self, output: Tensor) -> None:
        """One call; statistics of finite values, in fp32."""
        flat = output.detach().float().flatten()
        finite = flat[torch.isfinite(flat)]
        self.calls += 1
        self.non_finite += flat.numel() - finite.numel()
        if finite.numel():
            self.values += finite.numel()
            self.total += float(finite.sum())
            self.square += float(finite.pow(2).sum())
            self.mean_abs += float(finite.abs().sum())

    @property
    def std(self) -> float:
        """Standard deviation over everything seen."""
        mean = self.total / max(1, self.values)
        return math.sqrt(max(0.0, self.square / max(1, self.values) - mean * mean))

    @property
    def mean(self) -> float:
        """Mean |output|."""
        return self.mean_abs / max(1, self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One block that lost its size, or its numbers."""

    block: str
    reason: str
    value: float
    bound: float


class Watcher:
    """Hooks on all blocks of a model; `close` (or leaving the `with`) removes them."""

    def __init__(self, model: nn.Module, blocks: tuple[str, ...] = BLOCKS) -> None:
        self.seen: dict[str, Seen] = {}
        self.steps = 0
        self._handles = [model.register_forward_pre_hook(self._step)]
        self.is_compiled = _is_compiled(model)
        for name, module in model.named_modules():
            if name.rpartition(".")[2] in blocks:
                self.seen[name] = Seen()
                self._handles.append(module.register_forward_hook(self._note(name)))
        if not self.seen:
            self.close()
            raise ValueError(f"{type(model).__name__} has no module called {', '.join(blocks)}: name its blocks")

    def _step(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self.steps += 1

    def _note(self, name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, Tensor) and not torch.compiler.is_compiling() and not _is_capturing(first):
                self.seen[name].add(first)

        return hook

    def silence(self, steps: int | None = None) -> str | None:
        """Why the numbers cannot be trusted; None if every block was called as often as the model.

        `steps`: how often the caller ran the model, where graphs hide that from us.
        """
        wanted = self.steps if steps is None else steps
        quiet = [name for name, one in self.seen.items() if one.calls < wanted]
        if wanted == 0:
            return "the model has not run yet, or its forward never came through Python"
        if not quiet:
            return None
        cause = "the model is compiled" if self.is_compiled else "torch.compile or a CUDA graph runs it without Python"
        fewest = min(self.seen[name].calls for name in quiet)
        return f"{len(quiet)} of {len(self.seen)} hooks were called {fewest} times in {wanted} steps: {cause}"

    def alarms(self, reference: Mapping[str, float] | None = None) -> list[Alarm]:
        """Blocks that collapsed, against `reference` (block -> std) or else their neighbours; and those not finite."""
        found = []
        for name, one in self.seen.items():
            if one.non_finite:
                found.append(Alarm(block=name, reason="values that are not finite", value=one.non_finite, bound=0))
            if not one.values:
                continue
            if one.mean < MIN_MEAN_ABS:
                found.append(Alarm(block=name, reason="mean |output|", value=one.mean, bound=MIN_MEAN_ABS))
            wanted = self._peers(name) if reference is None else reference.get(name)
            if wanted and one.std < MAX_PEER_RATIO * wanted:
                found.append(
                    Alarm(block=name, reason="std of the output", value=one.std, bound=MAX_PEER_RATIO * wanted)
                )
        return found

    def spreads(self) -> dict[str, float]:
        """Block -> standard deviation: the reference of a later run."""
        return {name: one.std for name, one in self.seen.items() if one.values}

    def _peers(self, name: str) -> float | None:
        """Median of the same block in up to three layers on each side."""
        leaf = name.rpartition(".")[2]
        same = [other for other in self.seen if other.rpartition(".")[2] == leaf]
        at = same.index(name)
        near = sorted(self.seen[one].std for one in same[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1] if one != name)
        return near[len(near) // 2] if len(near) >= NEIGHBOURS else None

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> Watcher:
        """Watch inside a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(model: nn.Module, blocks: tuple[str, ...] = BLOCKS) -> Watcher:
    """Put hooks on every attention and feed-forward block. Raises ValueError for a model that has none by name."""
    return Watcher(model, blocks)


def _is_compiled(model: nn.Module) -> bool:
    return hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None


def _is_capturing(values: Tensor) -> bool:
    """Inside a CUDA graph's capture a number would be read before it is computed."""
    return bool(values.is_cuda and torch.cuda.is_current_stream_capturing())
