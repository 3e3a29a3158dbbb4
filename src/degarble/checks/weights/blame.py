"""Where a fault of many modules is: in the config, if most modules show it; in the tensors, if only some do."""

from __future__ import annotations

from dataclasses import replace

from degarble.evidence.declared_key import declared_key
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.methods.interface import Declaration

MOST = 0.5


def is_in_config(found: int, judged: int, declaration: Declaration | None) -> bool:
    """Whether most modules contradict something that a config says."""
    return declaration is not None and found > 1 and found > judged * MOST


def config_place(declaration: Declaration, module: StoredModule, about: str, role: str = PAYLOAD) -> Location:
    """The key that says `about`, with one module that contradicts it."""
    place = module.place(role)
    return replace(place, file=declaration.file, key=declared_key(declaration, module.name, about))
