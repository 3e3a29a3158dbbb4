"""What a model family needs, in the words of the checks: parameters, their shapes, where they must exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from degarble.architectures.canonical import template_of

MAX_LAYERS = 10_000
MAX_EXPERTS = 100_000
MAX_SIZE = 2**31 - 1
"""No real dimension comes near it; a config above it is hostile or damaged, and must not be expanded."""


class ArchitectureError(ValueError):
    """A config key is missing, ill-typed or out of bounds, so no parameter list can be drawn from it."""

    def __init__(self, key: str, expected: str, found: str) -> None:
        super().__init__(f"config key {key!r}: expected {expected}, found {found}")
        self.key = key
        self.expected = expected
        self.found = found


class Container(StrEnum):
    """How parameters are stored; GGUF splits, stacks and shifts some of them differently."""

    HF = "hf"
    GGUF = "gguf"


class ParameterTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of the family, for all layers and experts that have it in the same shape."""

    name: str
    """Canonical Hugging Face name with `{layer}` and `{expert}` in place of the numbers."""
    shape: tuple[int, ...]
    """Logical shape without quantisation, `[out, in]` for linears."""
    dims: tuple[str, ...]
    """The expression over config keys behind each axis; empty for extras whose shape is not judged."""
    kind: str
    """`linear`, `norm`, `embedding`, `head`, `router`, `bias`, `other`; `norm` follows `norm_convention`."""
    layers: tuple[int, ...] | None
    experts: int | None
    needed: bool
    group: str | None
    """Alternatives: met when every needed member of one variant is there, in each layer on its own."""
    variant: str | None

    def names(self) -> Iterator[str]:
        """Every full name, layers outermost. Can be long: the caller decides whether to expand."""
        for layer in (None,) if self.layers is None else self.layers:
            name = self.name if layer is None else self.name.replace("{layer}", str(layer))
            if self.experts is None:
                yield name
            else:
                yield from (name.replace("{expert}", str(expert)) for expert in range(self.experts))

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a plain tensor of this shape can be this parameter."""
        return not self.dims or shape == self.shape


_Entry = tuple[ParameterTemplate, frozenset[int] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A family, its resolved config, and every parameter that follows from both."""

    family: str
    model_type: str
    config: Mapping[str, object]
    """The text model's config with the family's defaults filled in."""
    templates: tuple[ParameterTemplate, ...]
    num_layers: int
    mtp_layers: tuple[int, ...]
    """Layer numbers from `num_layers` on that hold multi-token prediction; their templates are not needed."""
    norm_convention: str
    """`w`: norms multiply by w. `1+w`: by 1 + w, so that healthy stored values scatter around 0."""
    fused_groups: tuple[tuple[str, ...], ...]
    """Modules that engines concatenate into one matrix, relative to the layer."""
    tied: bool
    rope: Mapping[str, float]
    """Used where the config is silent: `default_theta`, in some families more (`partial_rotary_factor`)."""
    _index: Mapping[str, tuple[_Entry, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", _index(self.templates))

    def match(self, canonical_name: str) -> ParameterTemplate | None:
        """The parameter that this tensor is; None for an unknown name or a layer or expert out of range."""
        template_name, layer, expert = template_of(canonical_name)
        for template, layers in self._index.get(template_name, ()):
            if layers is not None and layer not in layers:
                continue
            if template.experts is not None and (expert is None or expert >= template.experts):
                continue
            return template
        return None


def _index(templates: tuple[ParameterTemplate, ...]) -> dict[str, tuple[_Entry, ...]]:
    """Templates by name. A name has several where layers differ in shape, or where MTP layers repeat it."""
    sets: dict[int, frozenset[int]] = {}
    index: dict[str, tuple[_Entry, ...]] = {}
    for template in templates:
        layers = template.layers
        if layers is not None and id(layers) not in sets:
            sets[id(layers)] = frozenset(layers)
        entry = (template, None if layers is None else sets[id(layers)])
        index[template.name] = (*index.get(template.name, ()), entry)
    return index
