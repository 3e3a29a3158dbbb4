"""Evidence about activation scales: where a static scheme needs one stored with the weight, and which modules lack it.

A missing weight scale is one module's damage. Missing activation scales follow calibration instead: a scheme that was
never calibrated lacks all of them, an expert that no calibration token reached lacks its own. So modules are counted in
two cohorts, routed experts and everything else, and an expert is compared with the other experts of its layer.
"""

from __future__ import annotations

import msgspec

from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration

INPUT_SCALE = "input_scale"
"""The role of a stored activation scale."""


class InputScales(msgspec.Struct, frozen=True, kw_only=True):
    """Modules whose scheme needs a stored input scale and that have none, by what explains it."""

    uncalibrated: tuple[StoredModule, ...]
    """Nobody in their cohort has one."""
    uneven: tuple[StoredModule, ...]
    """Experts whose neighbours in the same layer have one."""
    lost: tuple[StoredModule, ...]
    """The rest: single modules that lack what their cohort has."""
    num_needed: int


@provides("input_scales")
def input_scales(modules: Modules, declaration: Declaration | None = None) -> InputScales:
    """Sort modules by whether they need an input scale and have it."""
    lacking: list[StoredModule] = []
    having: set[tuple[str, int | None]] = set()
    cohorts: set[bool] = set()
    num_needed = 0
    for example, members in modules.classes():
        if not example.form.is_quantized:
            continue
        if INPUT_SCALE in example.form.roles:
            num_needed += len(members)
            having |= {(member.template, member.layer) for member in members if member.expert is not None}
            cohorts |= {member.expert is None for member in members}
        elif _needs(example, declaration):
            num_needed += len(members)
            lacking += members
    uneven = [m for m in lacking if m.expert is not None and (m.template, m.layer) in having]
    rest = [m for m in lacking if m.expert is None or (m.template, m.layer) not in having]
    return InputScales(
        uncalibrated=tuple(m for m in rest if (m.expert is None) not in cohorts),
        uneven=tuple(uneven),
        lost=tuple(m for m in rest if (m.expert is None) in cohorts),
        num_needed=num_needed,
    )


def _needs(module: StoredModule, declaration: Declaration | None) -> bool:
    """The format says so, or it has a place for the scale and the scheme is declared static."""
    if INPUT_SCALE in module.form.missing:
        return True
    scheme = declaration.scheme_for(module.name) if declaration is not None else None
    has_place = INPUT_SCALE in module.format.roles.values()
    return scheme is not None and scheme.activations == "static" and has_place
