"""Companions of a quantised form that stayed beside a plain weight."""

from __future__ import annotations

from degarble.fixes.interface import repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("restore-payload")
def drop_orphans(job: Job) -> None:
    """Drop scales and other companions that belong to no stored codes.

    ## What it changes
    The named companions are taken out of their files and of the index. The plain weight beside them stays.

    ## Why there is one answer
    There is not: the plain weight may be raw codes that were never multiplied by these scales. A reference decides it.

    ## What it cannot do
    Bring back a payload. A companion without any weight beside it is left alone: fetch the payload.
    """
    modules = job.modules_at_places()
    lacking = [module for module in modules if module.payload is None]
    if lacking:
        raise job.cannot("the codes are not stored", [_payload_name(job, module) for module in lacking])
    job.judge("the plain weights are taken to be right, and the companions to be left over")
    for module in modules:
        for role in module.form.orphaned:
            job.drop_tensor(module.parts[module.form.roles[role]], "belongs to no codes")


def _payload_name(job: Job, module: StoredModule) -> str:
    """What the codes would be called: as those of the same module in other layers, or of any other module."""
    peers = [
        example for example, _ in job.modules.classes() if example.payload is not None and example.form.is_quantized
    ]
    for peer in sorted(peers, key=lambda peer: peer.template != module.template):
        return module.name + (peer.payload.name.removeprefix(peer.name) if peer.payload is not None else "")
    return f"{module.name} (its codes)"
