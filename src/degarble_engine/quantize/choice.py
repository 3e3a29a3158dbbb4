"""Which matrices of a checkpoint are quantised, and why every other linear stays plain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from degarble.errors import TargetError, UsageError
from degarble.formats.interface import StoredModule
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.recipe import Recipe

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
KINDS = frozenset({"linear", "router", "head", "unknown"})
"""What engines may build as linears; `unknown` is outside the text model."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Decided once, from headers alone."""

    wanted: frozenset[str]
    """Names on disk."""
    scale_dtype: torch.dtype
    plain: tuple[str, ...]
    """Linears that stay as they are, the head of a tied model included: what the config must list."""

    def wants(self, module: StoredModule) -> bool:
        """Whether a module is quantised."""
        return module.name in self.wanted


def choose(model: WalkedModel, recipe: Recipe) -> Choice:
    """Raises TargetError for a checkpoint that is quantised already, UsageError for shapes that cannot be held."""
    modules = model.weights.modules
    if model.weights.is_gguf or model.evidence.get("source").kind != "hf-folder":
        raise TargetError(f"{model.file}: expected a folder of safetensors files, found a file or GGUF")
    scheme, layout = recipe.quant_scheme(), recipe.layout()
    wanted: list[StoredModule] = []
    for module in modules.values():
        if module.form.is_quantized:
            raise TargetError(f"{module.name}: expected plain weights, found {module.form.format}: dequantise first")
        if not _is_matrix(model, module) or recipe.ignores(module):
            continue
        out_features, in_features = module.form.shape or (0, 0)
        reason = layout.refuses_shape(scheme, out_features, in_features)
        if reason is not None:
            raise UsageError(f"{module.name}: {reason}; give another --group-size, or --ignore it")
        wanted.append(module)
    if not wanted:
        raise TargetError(f"{model.file}: no linear that could be quantised")
    dtypes = {module.payload.dtype for module in wanted if module.payload is not None}
    if len(dtypes) != 1 or not dtypes <= set(DTYPES):
        raise TargetError(f"{model.file}: linears of one dtype are needed (BF16, F16 or F32), found {sorted(dtypes)}")
    names = frozenset(module.name for module in wanted)
    return Choice(names, layout.scale_dtype(scheme, DTYPES[dtypes.pop()]), tuple(_left(model, names)))


def _is_matrix(model: WalkedModel, module: StoredModule) -> bool:
    """A linear of a layer that runs: prediction layers behind the last are left alone."""
    is_linear = module.kind == "linear" and module.layer is not None and module.layer < model.num_layers
    return is_linear and module.form.format == "plain" and len(module.form.shape or ()) == 2


def _left(model: WalkedModel, wanted: frozenset[str]) -> Iterator[str]:
    head = model.skeleton.name_of(model.skeleton.head)
    if not model.weights.has(f"{head}.weight"):
        yield head
    for module in model.weights.modules.values():
        if module.name not in wanted and module.kind in KINDS and len(module.form.shape or ()) >= 2:
            yield module.name
