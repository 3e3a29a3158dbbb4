"""Two modules that hold each other's weights."""

from __future__ import annotations

from degarble.checkpoint.rope import Segment
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule

PARTNERS = {"k_proj": "v_proj", "gate_proj": "up_proj", "w1": "w3"}


@repair("exchange-modules")
def exchange_modules(job: Job) -> None:
    """Give two modules of a layer each other's tensors, all companions with them.

    ## What it changes
    The bytes under the names of k_proj and v_proj, or of gate and up; nothing is computed.

    ## Why there is one answer
    The rows of both fit their partners only if the two are exchanged. That is statistical evidence, so the step counts
    as a judgement; a reference proves it.

    ## What it cannot do
    Exchange modules whose parts differ in type or shape.
    """
    job.judge("that the two hold each other's weights is told by statistics")
    names = {module.name: module for module in job.modules_at_places()}
    for name, module in names.items():
        parent, _, leaf = name.rpartition(".")
        other = names.get(f"{parent}.{PARTNERS.get(leaf, '')}") or _gguf_partner(names, name)
        if other is not None:
            _exchange(job, module, other)
    if not job.edits:
        raise CannotRepair("the finding does not name both of two modules")


def _gguf_partner(names: dict[str, StoredModule], name: str) -> StoredModule | None:
    for mine, other in (("attn_k", "attn_v"), ("ffn_gate", "ffn_up")):
        if name.endswith(mine):
            return names.get(name.removesuffix(mine) + other)
    return None


def _exchange(job: Job, one: StoredModule, other: StoredModule) -> None:
    if {suffix: (i.dtype, i.shape) for suffix, i in one.parts.items()} != {
        suffix: (i.dtype, i.shape) for suffix, i in other.parts.items()
    }:
        raise CannotRepair(f"{one.name} and {other.name} are not stored alike")
    source = job.evidence.get("source")
    for suffix, mine in one.parts.items():
        theirs = other.parts[suffix]
        for target, origin in ((mine, theirs), (theirs, mine)):
            segment = Segment(origin.nbytes, None, origin.file, origin.start, source)
            job.put_tensor(target.file, target.name, target.dtype, target.shape, (segment,), f"from {origin.name}")
