"""One config key that a family reads: its type, its default, and what counts as hostile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from degarble.architectures.expression import Expression, ExpressionError, compile_expression
from degarble.architectures.interface import MAX_LAYERS, MAX_SIZE, ArchitectureError, Container

Values = Mapping[str, object]
_MAX_LIST = 4 * MAX_LAYERS
_EXPECTED = {
    "int": "a whole number of at least 1",
    "count": "a whole number of at least 0",
    "bool": "true or false",
    "str": "a string",
    "ints": "a list of whole numbers",
    "layer_ints": "a list with a whole number for each layer",
    "layer_strs": "a list with a string for each layer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """How to read one key. Expressions may name the keys resolved before it."""

    name: str
    kind: str
    """One of `_EXPECTED`; `layer_` kinds hold one element for each decoder layer."""
    default: Expression | None = None
    """For an absent key; None makes the key required."""
    null: Expression | None = None
    """For a key that is there and null; `default` if not given."""
    gguf: Expression | None = None
    """For a key that GGUF metadata cannot express: `None` is unknown, so allowed and not needed."""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    maximum: int = MAX_SIZE
    per_layer: bool = False
    """GGUF may give one value per layer."""

    def read(self, config: Values, resolved: Values, container: Container) -> object:
        """The value, or the default. Raises ArchitectureError for anything that cannot be used."""
        there = [key for key in (self.name, *self.aliases) if key in config]
        for key in there:
            if config[key] is not None:
                return self._checked(key, config[key], resolved, container)
        expression = self.default
        if there:
            expression = self.null or self.default
        elif container is Container.GGUF and self.gguf is not None:
            expression = self.gguf
        if expression is None:
            raise ArchitectureError(self.name, _EXPECTED[self.kind], "null" if there else "nothing")
        return self._computed(expression, resolved, container)

    def _computed(self, expression: Expression, resolved: Values, container: Container) -> object:
        try:
            if self.kind.startswith("layer_"):
                layers = resolved["num_hidden_layers"]
                assert isinstance(layers, int)
                each = [expression.evaluate({**resolved, "layer": layer}) for layer in range(layers)]
                value: object = None if None in each else each
            else:
                value = expression.evaluate(resolved)
        except ExpressionError as error:
            raise ArchitectureError(self.name, expression.text, str(error)) from None
        return None if value is None else self._checked(self.name, value, resolved, container)

    def _checked(self, key: str, value: object, resolved: Values, container: Container) -> object:
        if self.per_layer and container is Container.GGUF and isinstance(value, (list, tuple)):
            return self._list(key, value, resolved)
        match self.kind:
            case "int" | "count":
                return self._number(key, value)
            case "bool" if isinstance(value, bool):
                return value
            case "str" if isinstance(value, str):
                return value
            case "ints" | "layer_ints" | "layer_strs":
                return self._list(key, value, resolved)
        raise ArchitectureError(key, _EXPECTED[self.kind], _shown(value))

    def _number(self, key: str, value: object) -> int:
        minimum = 1 if self.kind == "int" else 0
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= self.maximum:
            raise ArchitectureError(key, f"{_EXPECTED[self.kind]} and at most {self.maximum}", _shown(value))
        return value

    def _list(self, key: str, value: object, resolved: Values) -> tuple[object, ...]:
        expected = _EXPECTED[self.kind]
        if not isinstance(value, (list, tuple)) or len(value) > _MAX_LIST:
            raise ArchitectureError(key, expected, _shown(value))
        for element in value:
            if not self._is_element(element):
                allowed = f" out of {list(self.choices)}" if self.choices else ""
                raise ArchitectureError(key, expected + allowed, f"the element {_shown(element)}")
        layers = resolved.get("num_hidden_layers", 0)
        each_layer = self.per_layer or self.kind.startswith("layer_")
        if each_layer and isinstance(layers, int) and len(value) < layers:
            raise ArchitectureError(key, f"{layers} elements, one for each layer", f"{len(value)}")
        return tuple(value)

    def _is_element(self, element: object) -> bool:
        if self.kind == "layer_strs":
            return isinstance(element, str) and (not self.choices or element in self.choices)
        return isinstance(element, int) and not isinstance(element, bool) and 0 <= element <= MAX_SIZE


def _shown(value: object) -> str:
    """A short, one-line picture of whatever the config holds."""
    if isinstance(value, (list, tuple, dict)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return repr(value)[:80]


def parse_key(name: str, row: Mapping[str, object]) -> ConfigKey:
    """A key from its row in a data file."""

    def expression(field: str) -> Expression | None:
        return compile_expression(str(row[field])) if field in row else None

    maximum = row.get("maximum", MAX_SIZE)
    assert isinstance(maximum, int)
    return ConfigKey(
        name=name,
        kind=str(row["type"]),
        default=expression("default"),
        null=expression("null"),
        gguf=expression("gguf"),
        aliases=_strings(row.get("aliases", ())),
        choices=_strings(row.get("choices", ())),
        maximum=maximum,
        per_layer=bool(row.get("per_layer", False)),
    )


def _strings(value: object) -> tuple[str, ...]:
    assert isinstance(value, (list, tuple))
    return tuple(str(item) for item in value)
