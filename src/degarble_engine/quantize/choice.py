"""Which matrices of a checkpoint are quantised, and why every other linear stays plain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import torch

from degarble.errors import TargetError, UsageError
from degarble.formats.interface import StoredModule
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.recipe import Recipe
from degarble_engine.quantize.scheme import QuantScheme

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
KINDS = frozenset({"linear", "router", "head", "unknown"})
"""What engines may build as linears; `unknown` is outside the text model."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Decided once, from headers alone."""

    schemes: Mapping[str, QuantScheme]
    """By name on disk, of everything that is quantised."""
    scale_dtype: torch.dtype
    plain_dtype: torch.dtype
    """Of the weights as they are."""
    plain: tuple[str, ...]
    """Linears that stay as they are, the head of a tied model included: what the config must list."""

    @property
    def wanted(self) -> Set[str]:
        """Names on disk."""
        return self.schemes.keys()

    def wants(self, module: StoredModule) -> bool:
        """Whether a module is quantised."""
        return module.name in self.schemes

    def others(self, usual: QuantScheme) -> dict[QuantScheme, list[str]]:
        """Modules by scheme, where it is not the usual one."""
        found: dict[QuantScheme, list[str]] = {}
        for name, scheme in self.schemes.items():
            if scheme != usual:
                found.setdefault(scheme, []).append(name)
        return found


def choose(model: WalkedModel, recipe: Recipe, planned: Mapping[str, QuantScheme | None] | None = None) -> Choice:
    """`planned`: schemes that a plan has found, over those of the recipe.

    Raises TargetError for a checkpoint that is quantised already, UsageError for shapes that cannot be held."""
    modules = model.weights.modules
    if model.weights.is_gguf or model.evidence.get("source").kind != "hf-folder":
        raise TargetError(f"{model.file}: expected a folder of safetensors files, found a file or GGUF")
    usual, layout, planned = recipe.quant_scheme(), recipe.layout(), planned or {}
    schemes: dict[str, QuantScheme] = {}
    wanted: list[StoredModule] = []
    for module in modules.values():
        if module.form.is_quantized:
            raise TargetError(f"{module.name}: expected plain weights, found {module.form.format}: dequantise first")
        if not _is_matrix(model, module):
            continue
        scheme = planned[module.name] if module.name in planned else recipe.scheme_of(module)
        if scheme is None:
            continue
        out_features, in_features = module.form.shape or (0, 0)
        reason = layout.refuses_shape(scheme, out_features, in_features)
        if reason is not None:
            raise UsageError(f"{module.name}: {reason}; give another --group-size, or --ignore it")
        wanted.append(module)
        schemes[module.name] = scheme
    if not wanted:
        raise TargetError(f"{model.file}: no linear that could be quantised")
    dtypes = {module.payload.dtype for module in wanted if module.payload is not None}
    if len(dtypes) != 1 or not dtypes <= set(DTYPES):
        raise TargetError(f"{model.file}: linears of one dtype are needed (BF16, F16 or F32), found {sorted(dtypes)}")
    if not layout.holds_several and len(set(schemes.values()) | {usual}) > 1:
        raise UsageError(
            f"--export {recipe.export} has one scheme for all modules; compressed-tensors and gptq have several"
        )
    dtype = DTYPES[dtypes.pop()]
    return Choice(schemes, layout.scale_dtype(usual, dtype), dtype, tuple(_left(model, schemes.keys())))


def _is_matrix(model: WalkedModel, module: StoredModule) -> bool:
    """A linear of a layer that runs: prediction layers behind the last are left alone."""
    is_linear = module.kind == "linear" and module.layer is not None and module.layer < model.num_layers
    return is_linear and module.form.format == "plain" and len(module.form.shape or ()) == 2


def _left(model: WalkedModel, wanted: Set[str]) -> Iterator[str]:
    head = model.skeleton.name_of(model.skeleton.head)
    if not model.weights.has(f"{head}.weight"):
        yield head
    for module in model.weights.modules.values():
        if module.name not in wanted and module.kind in KINDS and len(module.form.shape or ()) >= 2:
            yield module.name
