"""Which format wrote a module: evidence first (names, dtypes, shapes), the label only to break a tie.

Formats are found by walking this package. Each says how sure it is; the surest wins, and a tie is an unknown format
rather than a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

import degarble.formats as package
from degarble.checkpoint.tensor_data import Array
from degarble.formats.interface import PAYLOAD, Form, Parts, StoredModule, WeightFormat
from degarble.formats.scheme import Scheme
from degarble.registry import walk

PLAIN_PARTS = frozenset({"weight", "bias"})


class Unjudged(WeightFormat):
    """Stands for what no format file recognises: companions alone, or an unknown payload."""

    name: ClassVar[str] = "unknown"
    roles: ClassVar[Mapping[str, str]] = {}

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """Never."""
        return 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """Companions whose payload is gone, or codes that nobody knows."""
        known = companion_suffixes()
        roles = {known[suffix]: suffix for suffix in parts if suffix in known}
        rest = [suffix for suffix in parts if suffix not in known]
        if roles and not rest:
            orphaned = tuple(role for role in roles if role != "bias")
            return Form(format="companions", scheme=None, shape=None, roles=roles, orphaned=orphaned)
        payload = next((suffix for suffix in rest if suffix in payload_suffixes()), None)
        if payload is not None:
            roles[PAYLOAD] = payload
        return Form(format="unknown", scheme=None, shape=None, roles=roles)

    def codes(self, module: StoredModule) -> Array:
        """Not known."""
        raise ValueError(f"{module.name}: unknown weight format")

    scales = codes


UNJUDGED = Unjudged()


@cache
def formats() -> dict[str, WeightFormat]:
    """One instance of every format file, by name."""
    found: dict[str, WeightFormat] = {}
    for module in walk(package):
        for member in vars(module).values():
            is_format = isinstance(member, type) and issubclass(member, WeightFormat) and "name" in vars(member)
            if is_format and member.__module__ == module.__name__ and member is not Unjudged:
                found[member.name] = member()
    return found


@cache
def payload_suffixes() -> frozenset[str]:
    """Every suffix under which some format stores codes or values."""
    return frozenset(suffix for fmt in formats().values() for suffix, role in fmt.roles.items() if role == PAYLOAD)


@cache
def companion_suffixes() -> dict[str, str]:
    """Every suffix that only ever accompanies a payload, with its role."""
    return {
        suffix: role
        for fmt in formats().values()
        for suffix, role in fmt.roles.items()
        if role != PAYLOAD and suffix not in payload_suffixes()
    }


def detect(parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> tuple[WeightFormat, Form]:
    """The format of one module and what its headers say. Never raises on data."""
    claims = [(fmt.claim(parts, declared), name, fmt) for name, fmt in formats().items()]
    best = max(strength for strength, _, _ in claims)
    winners = [fmt for strength, _, fmt in claims if strength == best]
    if best == 0 or len(winners) > 1:
        return UNJUDGED, UNJUDGED.form(parts, declared, expected)
    fmt = winners[0]
    form = fmt.form(parts, declared, expected)
    stray = tuple(
        role for suffix, role in companion_suffixes().items() if suffix in parts and suffix not in form.roles.values()
    )
    if stray and not form.orphaned:
        form = _with_orphans(form, parts, stray)
    return fmt, form


def _with_orphans(form: Form, parts: Parts, stray: tuple[str, ...]) -> Form:
    """Companions that the winning format has no use for: they stayed behind when the payload changed its form."""
    suffixes = {role: suffix for suffix, role in companion_suffixes().items() if suffix in parts}
    roles = {**{role: suffix for role, suffix in suffixes.items() if role in stray}, **form.roles}
    return Form(
        format=form.format,
        scheme=form.scheme,
        shape=form.shape,
        roles=roles,
        missing=form.missing,
        orphaned=stray,
        contradictions=form.contradictions,
    )
