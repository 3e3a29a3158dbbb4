"""What a `quantization_config` declares, in one vocabulary for all methods.

A declaration is a claim. Checks hold it against what the shapes prove; formats use it only to break ties.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from degarble.formats.scheme import Scheme


class SkipList(msgspec.Struct, frozen=True, kw_only=True):
    """One list of modules that stay plain, as it stands in the file."""

    file: str
    key: str
    """Dotted path: `quantization_config.modules_to_not_convert`."""
    entries: tuple[str, ...]


class ModuleRule(msgspec.Struct, frozen=True, kw_only=True):
    """A scheme (or None: stays plain) for the modules a predicate accepts; later rules do not override earlier ones."""

    key: str
    matches: Callable[[str], bool]
    scheme: Scheme | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Everything one quantisation config says. Built by exactly one file of this package."""

    method: str
    file: str
    key: str
    """Dotted path of the config object; '' when the whole file is it."""
    raw: Mapping[str, Any]
    default: Scheme | None
    """The scheme of every targeted linear; None if the config gives none (unknown method, only rules)."""
    rules: tuple[ModuleRule, ...] = ()
    skips: tuple[SkipList, ...] = ()
    implicit_plain: tuple[str, ...] = ()
    """Module-name endings that the method never quantises, list or no list (`lm_head`, `mlp.gate`)."""
    kv_cache: Scheme | None = None
    version: str | None = None
    """Version of the tool that wrote the config, where it says so."""
    sidecar: bool = False
    """True if the config stands in a file of its own that many loaders never open."""
    ill_typed: tuple[str, ...] = ()
    """Keys whose value has the wrong type; they were ignored."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Facts only some checks need: act_order keys as written, static activation flags, …"""

    def scheme_for(self, module: str) -> Scheme | None:
        """The declared scheme of one module, skip lists left out (engines read those differently)."""
        for rule in self.rules:
            if rule.matches(module):
                return rule.scheme
        return self.default

    def is_implicitly_plain(self, module: str) -> bool:
        """Whether the method itself leaves this module alone."""
        return any(module == ending or module.endswith("." + ending) for ending in self.implicit_plain)


class Method(ABC):
    """The grammar of one quantisation method's config."""

    names: ClassVar[tuple[str, ...]]
    """Values of `quant_method` (lower case) that this file reads."""

    @abstractmethod
    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """Read the config object. Never raises on data: ill-typed keys are noted and ignored."""
