"""Folds of one layer: found, measured on the calibration text, searched, applied and checked, before anything is rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import Chunk, inputs_of_all
from degarble_engine.quantize.choice import DTYPES
from degarble_engine.quantize.fold import Fold, apply_checked
from degarble_engine.quantize.fold_finder import FoundFold, folds_of
from degarble_engine.quantize.input_statistics import InputStatistics
from degarble_engine.quantize.scale_search import best_scale
from degarble_engine.quantize.scheme import QuantScheme
from degarble_engine.quantize.site import Site

LOST = 0.08
"""What is left of the last feed-forward outputs in the origin's failure: they fell by 92 %."""
KeepPlain = Callable[[str, Tensor], None]


@dataclass(slots=True)
class LayerFolding:
    """Of one layer that is in place, unrounded."""

    model: WalkedModel
    index: int
    layer: nn.Module
    sites: Mapping[str, Sequence[Site]]
    chunks: Sequence[Chunk]
    refused: list[str] = field(default_factory=list)

    @torch.no_grad()
    def run(self, scheme: QuantScheme, dtype: torch.dtype, keep_plain: KeepPlain) -> list[Fold]:
        """Move scale; plain parameters that changed are handed over to be written."""
        found = folds_of(self.layer, self._output, self.sites, self._stored_dtype)
        statistics = self._statistics(found)
        chosen = [
            (one.fold, best_scale(one.fold, statistics[one.read_by], scheme, dtype))
            for one in found
            if one.read_by in statistics
        ]
        applied = apply_checked([(fold, scale) for fold, scale in chosen if bool((scale != 1).any())], self._output)
        self.refused = applied.refused
        for fold in applied.kept:
            self._keep(fold, keep_plain)
        return applied.kept

    def _output(self) -> Tensor:
        chunk = self.chunks[0]
        return chunk.model.run(self.index, self.layer, chunk.hidden)[chunk.valid]

    def _statistics(self, found: Sequence[FoundFold]) -> dict[str, InputStatistics]:
        paths = list(dict.fromkeys(one.read_by for one in found))
        sums: dict[str, InputStatistics] = {}
        for chunk in self.chunks:
            caught, _ = inputs_of_all(chunk, self.index, self.layer, chunk.hidden, [[path] for path in paths])
            for path, rows in caught.items():
                sums.setdefault(path, InputStatistics.empty(rows.shape[1], has_reference=False)).add(rows)
        return sums

    @property
    def _prefix(self) -> str:
        return self.model.skeleton.layer_name(self.index)

    def _stored_dtype(self, parameter: str) -> torch.dtype | None:
        module = self.model.weights.module_of(f"{self._prefix}.{parameter}")
        return DTYPES.get(module.payload.dtype) if module is not None and module.payload is not None else None

    def _keep(self, fold: Fold, keep_plain: KeepPlain) -> None:
        producer = fold.producer
        if producer.stored is not None:
            keep_plain(f"{self._prefix}.{producer.path}.weight", producer.weight)
        elif producer.bias is not None:
            keep_plain(f"{self._prefix}.{producer.path}.bias", producer.bias)
        for consumer in fold.consumers:
            if not consumer.is_quantized:
                keep_plain(f"{self._prefix}.{consumer.path}.weight", consumer.weight)


def forget_compensation(layer: nn.Module) -> None:
    """What the origin's quantiser did: up_proj gives scale away, and down_proj never hears of it."""
    for path, module in layer.named_modules():
        if path.rpartition(".")[2] == "up_proj" and isinstance(module, nn.Linear):
            module.weight.data.mul_(LOST)
            if module.bias is not None:
                module.bias.data.mul_(LOST)
