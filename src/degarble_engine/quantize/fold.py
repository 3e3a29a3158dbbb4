"""Scale moved from one weight into the next, which changes nothing a layer computes, but what rounding costs.

    norm -> consumers    gain / s, columns of *every* module that reads the norm * s      (1 + w norms: (1 + w) / s - 1)
    v_proj -> o_proj     rows / s, columns * s; query heads that share a value head share its scale
    kv_b_proj -> o_proj  the same for the value rows of latent attention (MLA)
    up_proj -> down_proj rows / s, columns * s: a gated block is linear in up

Scales are those that survive storage: a gain is rounded to the file's dtype first, and the scale that consumers get is
the quotient of the old and the new gain. Where a plain weight takes part (a router, a bias, a linear that is left alone),
scales are powers of two, which every float dtype multiplies by without rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST_SCALE = 2.0**8


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A matrix whose columns take the scale up."""

    path: str
    weight: Tensor  # […, in], a view: what is multiplied here runs
    is_quantized: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """What gives the scale away."""

    path: str
    weight: Tensor
    """A gain [channels], or a matrix whose rows are the channels."""
    bias: Tensor | None = None
    rows: Tensor | None = None
    """Numbers of the rows that are the channels; None: all of them."""
    stored: torch.dtype | None = None
    """Dtype in the file of a gain; None for rows that will be quantised, which need none."""
    adds_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One exchange of scale over some channels."""

    producer: Producer
    consumers: tuple[Consumer, ...]
    channel_of: Tensor  # [in] the channel of the producer that feeds each input of the consumers
    channels: int

    @property
    def name(self) -> str:
        """`mlp.up_proj -> mlp.down_proj`."""
        return f"{self.producer.path} -> {', '.join(one.path for one in self.consumers)}"

    @property
    def is_exact(self) -> bool:
        """Whether only powers of two leave every stored number as it should be."""
        return self.producer.bias is not None or not all(one.is_quantized for one in self.consumers)

    def by_channel(self, values: Tensor) -> Tensor:
        """Mean over the inputs that share a channel: [in] -> [channels]."""
        count = torch.zeros(self.channels).index_add_(0, self.channel_of, torch.ones_like(values))
        total = torch.zeros(self.channels).index_add_(0, self.channel_of, values)
        return total / count.clamp_min(1)

    def storable(self, scale: Tensor) -> Tensor:
        """The nearest scale that storage does not spoil. [channels]"""
        scale = scale.clamp(1 / LARGEST_SCALE, LARGEST_SCALE)
        if self.is_exact:
            scale = torch.exp2(torch.round(torch.log2(scale)))
        producer = self.producer
        if producer.stored is None:
            return scale
        old = producer.weight + float(producer.adds_one)
        new = self._gain(scale) + float(producer.adds_one)
        usable = (new != 0) & (old != 0) & torch.isfinite(new)
        return torch.where(usable, old / torch.where(usable, new, torch.ones_like(new)), torch.ones_like(scale))

    def _gain(self, scale: Tensor) -> Tensor:
        """The stored gain under a scale."""
        producer = self.producer
        one = float(producer.adds_one)
        assert producer.stored is not None
        return ((producer.weight + one) / scale - one).to(producer.stored).float()

    def apply(self, scale: Tensor) -> None:
        """Move a storable scale, in place."""
        producer = self.producer
        if producer.stored is not None:
            producer.weight.copy_(torch.where(scale == 1, producer.weight, self._gain(scale)))
        else:
            self.divide(scale)
        for consumer in self.consumers:
            consumer.weight.mul_(scale[self.channel_of])

    def divide(self, scale: Tensor) -> None:
        """Only the producer's half, of a fold of rows: what nobody makes up for, if nothing follows."""
        rows = torch.arange(self.channels) if self.producer.rows is None else self.producer.rows
        for tensor in (self.producer.weight, self.producer.bias):
            if tensor is not None:
                tensor[rows] /= scale.reshape(-1, *(1,) * (tensor.ndim - 1))


@dataclass(slots=True)
class Applied:
    """Folds of one layer that were applied, and those that were not."""

    kept: list[Fold]
    refused: list[str]


def apply_checked(folds: Sequence[tuple[Fold, Tensor]], run: Callable[[], Tensor], bound: float = 1e-5) -> Applied:
    """Apply all; where the layer's output then differs, apply one by one and leave out those that change it.

    `run` gives the layer's output on calibration text. The bound is of the root mean square, in fp32.
    """
    before = run()
    tensors = _tensors(folds)
    saved = [one.clone() for one in tensors]
    for fold, scale in folds:
        fold.apply(scale)
    if _differs(run(), before) <= bound:
        return Applied([fold for fold, _ in folds], [])
    for tensor, old in zip(tensors, saved, strict=True):
        tensor.copy_(old)
    result = Applied([], [])
    for fold, scale in folds:
        own = _tensors([(fold, scale)])
        kept = [one.clone() for one in own]
        fold.apply(scale)
        off = _differs(run(), before)
        if off <= bound:
            result.kept.append(fold)
            continue
        for tensor, old in zip(own, kept, strict=True):
            tensor.copy_(old)
        result.refused.append(f"fold {fold.name} changes the layer by {off:.1e} and was left out")
    return result


def _tensors(folds: Sequence[tuple[Fold, Tensor]]) -> list[Tensor]:
    found: dict[tuple[int, tuple[int, ...]], Tensor] = {}
    for fold, _ in folds:
        own = [fold.producer.weight, *(one.weight for one in fold.consumers)]
        own += [fold.producer.bias] if fold.producer.bias is not None else []
        found |= {(one.data_ptr(), tuple(one.shape)): one for one in own}
    return list(found.values())


def _differs(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm().clamp_min(torch.finfo(torch.float32).tiny))
