"""Evidence from headers that contradict the config or each other: who is outvoted, the config or some tensors?

If most of the modules that one scheme governs contradict it in the same way, the config is at fault; if only some do,
those modules are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from degarble.evidence.declared_key import declared_key
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.interface import Contradiction, StoredModule
from degarble.formats.scheme import Scheme
from degarble.methods.interface import Declaration

ORDER = ("layout", "num_bits", "block_grid", "group_size", "act_order", "dtype", "shape", "zero_point")
"""The earlier explains the later: with a wrong width every group and every packed zero point looks wrong too."""


UNDECLARED = "one scale per tensor, as no block size is declared"
"""How vLLM reads an FP8 config without `weight_block_size`; transformers takes 128 x 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """Modules with equal headers that contradict in one way."""

    about: str
    """Where the config is outvoted: the leading fact among all its contradictions. Else the contradiction's own."""
    contradiction: Contradiction
    members: tuple[StoredModule, ...]
    is_config: bool
    """Most modules under the same scheme say so: the config is outvoted."""
    file: str | None
    """The config's file and dotted key, where there is a config."""
    key: str | None
    num_alike: int
    """Modules under the same scheme that contradict it."""
    num_governed: int


@dataclass(slots=True)
class _Party:
    """All quantised modules under one declared scheme, and those among them that contradict it."""

    num_modules: int = 0
    against: list[tuple[Contradiction, tuple[StoredModule, ...]]] = field(default_factory=list)

    def about(self, *, zero_points: bool) -> list[tuple[Contradiction, tuple[StoredModule, ...]]]:
        """The contradictions about zero points, or all others with the leading fact first."""
        found = [pair for pair in self.against if (pair[0].about == "zero_point") is zero_points]
        return sorted(found, key=lambda pair: _rank(pair[0].about))


@provides("disputes")
def disputes(modules: Modules, declaration: Declaration | None = None) -> tuple[Dispute, ...]:
    """The first contradiction of every class of modules, and that about zero points beside it."""
    parties: dict[Scheme | None, _Party] = {}
    for example, members in modules.classes():
        if not example.form.is_quantized:
            continue
        scheme = declaration.scheme_for(example.name) if declaration is not None else None
        party = parties.setdefault(scheme, _Party())
        party.num_modules += len(members)
        party.against += [(contradiction, tuple(members)) for contradiction in _leading(example, scheme)]
    return tuple(
        dispute
        for party in parties.values()
        for zero_points in (False, True)
        for dispute in _judge(party.about(zero_points=zero_points), party.num_modules, declaration)
    )


def _leading(module: StoredModule, declared: Scheme | None) -> Iterator[Contradiction]:
    ranked = sorted(module.form.contradictions, key=lambda item: _rank(item.about))
    first = next((item for item in ranked if item.about != "zero_point"), _strategy_gap(declared, module.form.scheme))
    zero_point = next((item for item in ranked if item.about == "zero_point"), None)
    yield from (item for item in (first, zero_point) if item is not None)


def _strategy_gap(declared: Scheme | None, stored: Scheme | None) -> Contradiction | None:
    """One scale for a row or tensor declared, groups stored, or the other way round, where sizes alone do not tell."""
    if declared is None or stored is None:
        return None
    if declared.method == "fp8" and declared.block_shape is None and declared.strategy is None:
        if stored.strategy == "block":
            return Contradiction(about="block_grid", role="scale", expected=UNDECLARED, found=stored.label)
        return None
    single, grouped = frozenset({"tensor", "channel"}), frozenset({"group", "tensor_group"})
    said, is_stored = declared.strategy, stored.strategy
    if (said in single and is_stored in grouped) or (said in grouped and is_stored in single):
        return Contradiction(about="group_size", role="scale", expected=declared.label, found=stored.label)
    return None


def _rank(about: str) -> int:
    return ORDER.index(about) if about in ORDER else len(ORDER)


def _judge(
    against: Sequence[tuple[Contradiction, tuple[StoredModule, ...]]],
    num_governed: int,
    declaration: Declaration | None,
) -> Iterator[Dispute]:
    num_alike = sum(len(members) for _, members in against)
    is_config = declaration is not None and num_alike * 2 > num_governed
    for contradiction, members in against:
        about = against[0][0].about if is_config else contradiction.about
        yield Dispute(
            about=about,
            contradiction=contradiction,
            members=members,
            is_config=is_config,
            file=declaration.file if declaration is not None else None,
            key=_key(declaration, members[0], about, contradiction) if declaration is not None else None,
            num_alike=num_alike,
            num_governed=num_governed,
        )


def _key(declaration: Declaration, module: StoredModule, about: str, contradiction: Contradiction) -> str:
    """The key to look at; that of the block size also where it is missing."""
    if about == "block_grid" and declaration.method == "fp8":
        return f"{declaration.key}.weight_block_size".lstrip(".")
    is_label = about == "layout" and contradiction.expected != declaration.method
    return declared_key(declaration, module.name, "label" if is_label else about)
