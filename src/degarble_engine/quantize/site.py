"""Which weights of a layer are quantised, where they lie in the running layer, and where in the file.

file       model.layers.3.mlp.experts.7.up_proj        a StoredModule: one matrix
layer      mlp.experts . gate_up_proj [7, width:]      a part of a parameter that transformers keeps fused
layer      self_attn.q_proj . weight                   a whole parameter
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from degarble.formats.interface import StoredModule
from degarble_engine.numerics.tap import is_experts
from degarble_engine.numerics.walked_model import WalkedModel

Wanted = Callable[[StoredModule], bool]
FUSED, DOWN = "gate_up_proj", "down_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One matrix."""

    stored: StoredModule
    path: str
    """Of the module within the layer."""
    parameter: Tensor
    """The whole parameter; the matrix is a view of it."""
    leaf: str = "weight"
    """Of the parameter."""
    expert: int | None = None
    rows: tuple[int, int] | None = None
    """Half-open range of the parameter's rows."""

    @property
    def name(self) -> str:
        """As in the file."""
        return self.stored.name

    @property
    def weight(self) -> Tensor:
        """A view, [out, in]: what is copied into it runs."""
        found = self.parameter if self.expert is None else self.parameter[self.expert]
        return found if self.rows is None else found[slice(*self.rows)]


def sites_of(model: WalkedModel, index: int, layer: nn.Module, wanted: Wanted) -> dict[str, list[Site]]:
    """Module path within the layer -> its matrices. The layer's weights must be in place."""
    prefix = model.skeleton.layer_name(index)
    found: dict[str, list[Site]] = {}
    for path, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            stored = model.weights.module_of(f"{prefix}.{path}.weight")
            if stored is not None and wanted(stored) and stored.form.shape == tuple(module.weight.shape):
                found[path] = [Site(stored=stored, path=path, parameter=module.weight.data)]
        elif is_experts(module):
            sites = [site for site in _experts(model, f"{prefix}.{path}", path, module) if wanted(site.stored)]
            if sites:
                found[path] = sites
    return found


def _experts(model: WalkedModel, name: str, path: str, module: nn.Module) -> Iterator[Site]:
    """Gate and up of every expert, then every down; nothing where the file keeps experts stacked or fused."""
    for leaf in (FUSED, DOWN):
        parameter = module._parameters.get(leaf)
        if parameter is None:
            return
        count, width = parameter.shape[0], parameter.shape[1]
        parts = 2 if leaf == FUSED else 1
        stored = list(model.weights.stored(f"{name}.{leaf}"))
        if len(stored) != parts * count or width % parts:
            return
        for number, one in enumerate(stored):
            part, expert = divmod(number, count)
            rows = (part * width // parts, (part + 1) * width // parts)
            if one.form.shape == (rows[1] - rows[0], parameter.shape[2]):
                yield Site(stored=one, path=path, parameter=parameter.data, leaf=leaf, expert=expert, rows=rows)
