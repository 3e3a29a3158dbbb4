"""From a family and a resolved config to templates: which layers have a parameter, and in which shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.architectures.expression import Expression, ExpressionError
from degarble.architectures.family import Block, Family, Parameter
from degarble.architectures.interface import MAX_EXPERTS, MAX_LAYERS, ArchitectureError, ParameterTemplate

Sizes = Mapping[str, tuple[int, ...]]
"""Keys for which a GGUF file gives one value per layer."""


def build_templates(
    family: Family, config: Mapping[str, object], per_layer: Sizes, mtp_layers: tuple[int, ...]
) -> tuple[ParameterTemplate, ...]:
    """Every parameter of the model. Layers that share a shape share a template, whatever their number."""
    builder = _Builder(config, per_layer, mtp_layers)
    return tuple(template for block in family.blocks for template in builder.block(block))


def fused_groups(family: Family) -> tuple[tuple[str, ...], ...]:
    """Modules that engines store as one matrix, each group once."""
    return tuple(dict.fromkeys(group for block in family.blocks for group in block.fused))


class _Builder:
    """Holds one config; layer sets are evaluated once each, since most blocks share theirs."""

    def __init__(self, config: Mapping[str, object], per_layer: Sizes, mtp_layers: tuple[int, ...]) -> None:
        self._config = config
        self._per_layer = per_layer
        self._mtp_layers = mtp_layers
        self._layer_sets: dict[tuple[str, range | tuple[int, ...]], tuple[int, ...]] = {}

    def block(self, block: Block) -> Iterator[ParameterTemplate]:
        """Templates of one block: in the decoder's layers, and in the MTP layers that repeat it."""
        for parameter in block.parameters:
            state = _evaluate(parameter.when, self._config)
            if state is not None and not state:
                continue
            needed = parameter.needed and state is not None
            if block.layers is None:
                yield from self._templates(parameter, None, needed)
                continue
            numbers = range(0 if block.is_mtp else self._size(block.count, MAX_LAYERS))
            layers = self._layers(block.layers, numbers)
            if layers:
                yield from self._templates(parameter, layers, needed)
            repeats = self._layers(block.layers, self._mtp_layers) if block.follows_mtp else ()
            if repeats:
                yield from self._templates(parameter, repeats, needed=False)

    def _layers(self, expression: Expression, candidates: range | tuple[int, ...]) -> tuple[int, ...]:
        key = (expression.text, candidates)
        if key not in self._layer_sets:
            environment = dict(self._config)
            chosen: list[int] = []
            for layer in candidates:
                environment["layer"] = layer
                if _evaluate(expression, environment):
                    chosen.append(layer)
            self._layer_sets[key] = tuple(chosen)
        return self._layer_sets[key]

    def _templates(
        self, parameter: Parameter, layers: tuple[int, ...] | None, needed: bool
    ) -> Iterator[ParameterTemplate]:
        experts = None if parameter.experts is None else self._size(parameter.experts, MAX_EXPERTS)
        if experts == 0:
            return
        for chosen, shape in self._shapes(parameter, layers):
            yield ParameterTemplate(
                name=parameter.name,
                shape=shape,
                dims=tuple(axis.text for axis in parameter.dims),
                kind=parameter.kind,
                layers=chosen,
                experts=experts,
                needed=needed,
                group=parameter.group,
                variant=parameter.variant,
            )

    def _shapes(
        self, parameter: Parameter, layers: tuple[int, ...] | None
    ) -> Iterator[tuple[tuple[int, ...] | None, tuple[int, ...]]]:
        """Layers grouped by shape: only per-layer sizes differ, and a size of 0 means the layer lacks it."""
        used = {name for axis in parameter.dims for name in axis.names if name in self._per_layer}
        if layers is None or not used:
            yield layers, self._shape(parameter.dims, self._config)
            return
        by_values: dict[tuple[int, ...], list[int]] = {}
        for layer in layers:
            values = tuple(_at(self._per_layer[name], layer) for name in sorted(used))
            by_values.setdefault(values, []).append(layer)
        for values, chosen in by_values.items():
            if all(values):
                environment = {**self._config, **dict(zip(sorted(used), values, strict=True))}
                yield tuple(chosen), self._shape(parameter.dims, environment)

    def _shape(self, dims: tuple[Expression, ...], environment: Mapping[str, object]) -> tuple[int, ...]:
        sizes: list[int] = []
        for axis in dims:
            value = _evaluate(axis, environment)
            if not isinstance(value, int) or value < 1:
                raise ArchitectureError(axis.text, "a size of at least 1", repr(value))
            sizes.append(value)
        return tuple(sizes)

    def _size(self, expression: Expression, maximum: int) -> int:
        value = _evaluate(expression, self._config)
        if not isinstance(value, int) or not 0 <= value <= maximum:
            raise ArchitectureError(expression.text, f"a whole number from 0 to {maximum}", repr(value)[:80])
        return value


def _at(values: tuple[int, ...], layer: int) -> int:
    """The layer's value; MTP layers behind the end of the list take the last one."""
    return values[layer] if layer < len(values) else values[-1]


def _evaluate(expression: Expression, environment: Mapping[str, object]) -> object:
    try:
        value: object = expression.evaluate(environment)
    except ExpressionError as error:
        raise ArchitectureError(expression.text, "keys that this can be computed from", str(error)) from None
    return value
