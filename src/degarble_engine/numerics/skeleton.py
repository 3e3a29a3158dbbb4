"""A transformers model without its weights: the real code of a family, whose layers can be run one at a time.

Weights are created on the meta device, where they cost nothing; what a module computes for itself (rotary frequencies,
embedding scales) is real. The decoder layers are replaced by stand-ins that note the arguments each layer is called with,
so that masks, position embeddings and layer types come from the family's own forward and nothing here knows a family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from degarble.errors import TargetError
from degarble_engine.numerics.attention import IMPLEMENTATION, register

REAL_ELEMENTS = 1 << 16
"""Smaller tensors stay real at creation: gains of norms, and buffers."""
NOT_FOR_THE_MODEL = ("auto_map", "quantization_config", "compression_config", "_attn_implementation", "architectures",
                     "torch_dtype", "dtype", "transformers_version")  # fmt: skip
"""Keys that would run remote code, ask for a quantised kernel, or choose another dtype."""
LAYER_LISTS = ("layers", "h", "blocks", "block")

Keywords = dict[str, Any]


class _WeightsOnMeta(TorchFunctionMode):
    """Large tensors are made on the meta device; their initialisation then costs nothing either."""

    _MAKERS = frozenset((torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self._MAKERS and kwargs.get("device") is None and _elements(args) >= REAL_ELEMENTS:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def _elements(args: tuple[Any, ...]) -> int:
    shape = args[0] if args and isinstance(args[0], (tuple, list, torch.Size)) else args
    total = 1
    for size in shape:
        total *= size if isinstance(size, int) else 1
    return total


class _StandIn(nn.Module):
    """Takes a layer's place: notes the arguments, and hands on whatever the owner wants the layer to have given."""

    def __init__(self, layer: nn.Module, note: Callable[[Tensor, Keywords], Tensor], in_tuple: bool) -> None:
        super().__init__()
        object.__setattr__(self, "_layer", layer)
        self._note = note
        self._in_tuple = in_tuple

    def __getattr__(self, name: str) -> Any:
        """What a forward asks of its layers (attention_type, layer_type) is the layer's own."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(object.__getattribute__(self, "_layer"), name)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Not the layer's work."""
        if args:
            raise TargetError(
                f"{type(self._layer).__name__} is called with positional arguments, which is not supported"
            )
        handed = self._note(hidden_states, kwargs)
        return (handed,) if self._in_tuple else handed


class Skeleton:
    """The model's code. `layers` are the real layers, on the meta device until somebody places weights in them."""

    def __init__(self, config: PreTrainedConfig) -> None:
        register()
        self.config = config
        self.model = _instantiate(config)
        self.base: nn.Module = getattr(self.model, self.model.base_model_prefix, self.model)
        self.list_name = _layer_list(self.base, config)
        self.layers: nn.ModuleList = getattr(self.base, self.list_name)
        self.layers_prefix = f"{self._prefix(self.base)}{self.list_name}."
        self._in_tuple = False

    def _prefix(self, wanted: nn.Module) -> str:
        return next((f"{name}." for name, module in self.model.named_modules() if module is wanted and name), "")

    @property
    def embedding(self) -> nn.Module:
        """The input embedding."""
        found = self.model.get_input_embeddings()
        assert isinstance(found, nn.Module)
        return found

    @property
    def head(self) -> nn.Module:
        """The output projection."""
        found = self.model.get_output_embeddings()
        if not isinstance(found, nn.Module):
            raise TargetError(f"{type(self.model).__name__} has no output projection")
        return found

    def name_of(self, wanted: nn.Module) -> str:
        """Name of a module in the whole model."""
        return self._prefix(wanted).removesuffix(".")

    def layer_name(self, index: int) -> str:
        """`model.layers.3`."""
        return f"{self.layers_prefix}{index}"

    def outside_layers(self) -> Iterator[tuple[str, nn.Module, str]]:
        """(full name, owner, attribute) of every weight outside the layers, embedding and head."""
        special = {id(self.embedding), id(self.head)}
        for name, module in self.model.named_modules():
            if f"{name}.".startswith(self.layers_prefix) or id(module) in special:
                continue
            for attribute in module._parameters:
                yield f"{name}.{attribute}" if name else attribute, module, attribute

    def arguments(self, ids: Tensor) -> tuple[Tensor, list[Keywords]]:
        """The hidden state before the first layer, and the keyword arguments of every layer. Embedding must be placed."""
        try:
            return self._arguments(ids)
        except (TypeError, IndexError, RuntimeError, AttributeError):
            if self._in_tuple:
                raise
            self._in_tuple = True
            return self._arguments(ids)

    def _arguments(self, ids: Tensor) -> tuple[Tensor, list[Keywords]]:
        first: list[Tensor] = []
        noted: list[Keywords] = []

        def note(hidden: Tensor, keywords: Keywords) -> Tensor:
            first.append(hidden)
            noted.append(keywords)
            return hidden

        with self._standing_in(note):
            self.base(input_ids=ids, use_cache=False)
        if len(noted) != len(self.layers) or (noted and first[-1].shape != first[0].shape):
            raise RuntimeError(f"{len(noted)} of {len(self.layers)} layers were called")
        return first[0], noted

    def logits(self, hidden: Tensor) -> Tensor:
        """What the code behind the last layer makes of `hidden` [1, N, hidden]: norm, head, caps. Head must be placed."""
        ids = torch.zeros(hidden.shape[:2], dtype=torch.long)
        with self._standing_in(lambda _, __: hidden):
            found = self.model(input_ids=ids, use_cache=False).logits
        assert isinstance(found, Tensor)
        return found

    @contextmanager
    def _standing_in(self, note: Callable[[Tensor, Keywords], Tensor]) -> Iterator[None]:
        stand_ins = nn.ModuleList([_StandIn(layer, note, self._in_tuple) for layer in self.layers])
        setattr(self.base, self.list_name, stand_ins)
        try:
            yield
        finally:
            setattr(self.base, self.list_name, self.layers)


def model_config(values: Mapping[str, Any], origin: str) -> PreTrainedConfig:
    """transformers' config of a language model. Raises TargetError for a family it does not know."""
    kind = values.get("model_type")
    plain = {key: value for key, value in values.items() if key not in NOT_FOR_THE_MODEL}
    plain.pop("model_type", None)
    try:
        config = AutoConfig.for_model(str(kind), **plain)
        config._attn_implementation = IMPLEMENTATION
        config.dtype = torch.float32
    except Exception as error:  # whatever a strange config makes transformers raise
        raise TargetError(
            f"{origin}: transformers makes no model of it (model_type {kind!r}): {_short(error)}"
        ) from None
    return config


def _instantiate(config: PreTrainedConfig) -> Any:
    register()
    try:
        with _WeightsOnMeta(), torch.no_grad():
            model = AutoModelForCausalLM.from_config(
                config, dtype=torch.float32, attn_implementation=IMPLEMENTATION, trust_remote_code=False
            )
    except Exception as error:  # whatever a strange config makes transformers raise
        raise TargetError(f"model_type {config.model_type!r}: transformers cannot build it: {_short(error)}") from None
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "eager"
    return model.eval().requires_grad_(False)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


def _layer_list(base: nn.Module, config: PreTrainedConfig) -> str:
    for name in LAYER_LISTS:
        if isinstance(getattr(base, name, None), nn.ModuleList):
            return name
    raise TargetError(f"model_type {config.model_type!r}: {type(base).__name__} has no list of decoder layers")
