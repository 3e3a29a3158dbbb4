"""What was asked for: everything that decides the bytes of the result, apart from the model and the text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import TypeVar

import msgspec

from degarble.errors import UsageError
from degarble.formats.interface import StoredModule
from degarble.registry import walk
from degarble_engine.quantize import exports, methods
from degarble_engine.quantize.calibration import BUILT_IN
from degarble_engine.quantize.export import Export
from degarble_engine.quantize.interface import Method
from degarble_engine.quantize.methods.gptq import Gptq
from degarble_engine.quantize.rule import PLAIN, Rule, is_named
from degarble_engine.quantize.scheme import QuantScheme, parse_scheme

Named = TypeVar("Named", Method, Export)
MOST_ROUNDS = 8
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Options under the names of the command line."""

    scheme: str = "W4A16"
    method: str = "rtn"
    group_size: int | None = None
    ignore: tuple[str, ...] = ()
    """Full names of modules, or `re:` and a pattern that matches from the start."""
    calibration: str = BUILT_IN
    calibration_samples: int = 128
    calibration_tokens: int = 512
    export: str = "compressed-tensors"
    polish: int | None = None
    """Rounds of polishing of gptq and auto, 0 to 8; None: what the method does of itself."""
    forgotten_layers: int = 0
    """The origin's failure on purpose: in so many last layers up_proj gives scale away that down_proj never takes up."""
    base_model: str | None = None
    """Hub id of the model that was quantised, for the card."""
    rules: tuple[Rule, ...] = ()
    """For single modules; the first that names a module counts."""
    target_bits: float | None = None
    """Mean bits a weight of the quantised linears, scales and zero points included: see sensitivity/."""

    def quant_scheme(self) -> QuantScheme:
        """The scheme. Raises UsageError for one that the export cannot hold."""
        return self.held(parse_scheme(self.scheme, self.group_size))

    def scheme_of(self, module: StoredModule) -> QuantScheme | None:
        """The scheme of one module, None for one that stays plain. Raises UsageError as quant_scheme does."""
        rule = next((rule for rule in self.rules if rule.names(module)), None)
        if self.ignores(module) or (rule is not None and rule.scheme.lower() == PLAIN):
            return None
        return self.quant_scheme() if rule is None else self.held(parse_scheme(rule.scheme, rule.group_size))

    def held(self, scheme: QuantScheme) -> QuantScheme:
        """A scheme as the export stores it. Raises UsageError for one that it cannot hold."""
        reason = self.layout().refuses(scheme)
        if reason is not None:
            raise UsageError(f"--export {self.export} cannot hold {scheme.name}: {reason}")
        return msgspec.structs.replace(
            scheme, least_zero=self.layout().least_zero, is_multiplied=self.layout().multiplies
        )

    def algorithm(self) -> Method:
        """The method. Raises UsageError for a name that is none, and for polishing where nothing is polished."""
        method = _chosen(known_methods(), self.method, "--method")
        if self.polish is None:
            return method
        if not isinstance(method, Gptq):
            raise UsageError(f"--polish: --method {self.method} polishes nothing; gptq and auto do")
        if not 0 <= self.polish <= MOST_ROUNDS:
            raise UsageError(f"--polish: expected 0 to {MOST_ROUNDS}, found {self.polish}")
        return dataclasses.replace(method, rounds=self.polish)

    def layout(self) -> Export:
        """The export. Raises UsageError for a name that is none."""
        return _chosen(known_exports(), self.export, "--export")

    def ignores(self, module: StoredModule) -> bool:
        """Whether the caller wants a module left alone."""
        return is_named(self.ignore, module, "--ignore")


def _chosen(known: Mapping[str, Named], name: str, option: str) -> Named:
    found = known.get(name)
    if found is None:
        raise UsageError(f"{option} {name[:40]!r}: {', '.join(sorted(known))}")
    return found


@cache
def known_methods() -> dict[str, Method]:
    """By name, found by walking the package."""
    return {kind.name: kind() for kind in _subclasses(methods, Method)}  # type: ignore[type-abstract]


@cache
def known_exports() -> dict[str, Export]:
    """By name, found by walking the package."""
    return {kind.name: kind() for kind in _subclasses(exports, Export)}  # type: ignore[type-abstract]


def _subclasses(package: ModuleType, parent: type[Named]) -> Iterator[type[Named]]:
    for module in walk(package):
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, parent) and member.__module__ == module.__name__:
                yield member
