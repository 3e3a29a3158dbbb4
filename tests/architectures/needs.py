"""What a list of canonical names leaves unmatched or unmet; the way the checks will use the templates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from degarble.architectures import Architecture


def unknown(architecture: Architecture, names: Iterable[str]) -> list[str]:
    """Names that no template has."""
    return [name for name in names if architecture.match(name) is None]


def missing(architecture: Architecture, names: Iterable[str]) -> set[str]:
    """Needed names that are absent. Of alternatives in a layer, the most complete one counts."""
    there = set(names)
    absent: set[str] = set()
    groups: dict[tuple[str, int | None], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for template in architecture.templates:
        if not template.needed:
            continue
        for layer in (None,) if template.layers is None else template.layers:
            layer_names = {name for name in template.names() if layer is None or f".layers.{layer}." in name}
            gone = layer_names - there
            if template.group is None:
                absent |= gone
            else:
                groups[template.group, layer][template.variant or ""] |= gone
    for variants in groups.values():
        absent |= min(variants.values(), key=len)
    return absent
