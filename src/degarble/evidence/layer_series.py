"""Modules that repeat from layer to layer: the peers that statistics of one layer are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from degarble.errors import EvidenceMissing
from degarble.evidence.modules import Modules
from degarble.formats.interface import StoredModule

MIN_LAYERS = 4
"""Fewer peers are no distribution: with two layers, healthy modules differ by a factor of six."""


class LayerSeries(msgspec.Struct, frozen=True):
    """One module of the model, in every layer that has it."""

    template: str
    by_layer: Mapping[int, StoredModule]

    @property
    def example(self) -> StoredModule:
        """The module of the first layer."""
        return self.by_layer[min(self.by_layer)]


def layer_series(modules: Modules, suitable: Callable[[StoredModule], bool]) -> Iterator[LayerSeries]:
    """Modules of the text model by template, experts left out."""
    found: dict[str, dict[int, StoredModule]] = {}
    for example, members in modules.classes():
        if example.canonical is None or example.layer is None or example.expert is not None or not suitable(example):
            continue
        rows = found.setdefault(example.template, {})
        for module in members:
            if module.layer is not None:
                rows[module.layer] = module
    for template, by_layer in found.items():
        yield LayerSeries(template, by_layer)


def with_peers(series: Sequence[LayerSeries], what: str) -> list[LayerSeries]:
    """Those with enough layers. Raises EvidenceMissing, which skips the check, if there is none."""
    if not series:
        raise EvidenceMissing(f"no {what}")
    enough = [one for one in series if len(one.by_layer) >= MIN_LAYERS]
    if not enough:
        raise EvidenceMissing(f"fewer than {MIN_LAYERS} layers with {what}: no peers to compare with")
    return enough


def deviations(values: Mapping[int, float]) -> dict[int, float]:
    """Each layer's distance from the median of the others."""
    layers = sorted(values)
    return {
        layer: values[layer] - float(np.median([values[other] for other in layers if other != layer]))
        for layer in layers
    }
