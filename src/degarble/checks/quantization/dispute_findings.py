"""Findings from disputes between headers and config: one a module, pointing at whichever of the two is outvoted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from degarble.evidence.disputes import Dispute
from degarble.finding import Finding, Fix, Location
from degarble.formats.interface import StoredModule


def findings(dispute: Dispute, subject: str, config_fix: Fix, tensor_fix: Fix) -> Iterator[Finding]:
    """`subject` says in words what is contradicted. All modules of one kind of dispute fold into one finding."""
    item = dispute.contradiction
    side = "config" if dispute.is_config else "tensors"
    for module in dispute.members:
        yield Finding(
            location=_place(dispute, module),
            message=_message(dispute, module, subject),
            measured={
                "found": item.found,
                "modules_that_contradict": dispute.num_alike,
                "quantised_modules": dispute.num_governed,
            },
            bound={"expected": item.expected},
            fix=_fix(dispute, config_fix) if dispute.is_config else tensor_fix,
            fold=f"{dispute.about} {side}",
        )


def _fix(dispute: Dispute, config_fix: Fix) -> Fix:
    """Writing another value is safe only if no module speaks for the old one."""
    return config_fix if dispute.num_alike == dispute.num_governed else replace(config_fix, safe=False)


def _message(dispute: Dispute, module: StoredModule, subject: str) -> str:
    item = dispute.contradiction
    tensor = (module.part(item.role) or module.any_part).name
    if dispute.is_config:
        return (
            f"{dispute.file}: {dispute.key} contradicts {dispute.num_alike} of {dispute.num_governed} quantised "
            f"modules: {subject} should be {item.expected}, {tensor} shows {item.found}"
        )
    others = dispute.num_governed - dispute.num_alike
    witness = f"; {others} other modules agree with the config" if dispute.file and others else ""
    return f"{tensor}: {subject} should be {item.expected}, found {item.found}{witness}"


def _place(dispute: Dispute, module: StoredModule) -> Location:
    return module.place(dispute.contradiction.role, file=dispute.file if dispute.is_config else None, key=dispute.key)
