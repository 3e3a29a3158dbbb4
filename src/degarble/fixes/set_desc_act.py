"""The config's activation order follows the stored group index."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job


@repair("set-desc-act")
def set_desc_act(job: Job) -> None:
    """Declare the activation order that the stored group indices have.

    ## What it changes
    `desc_act` (or `actorder`) in the quantisation config, and in files that repeat it.

    ## Why there is one answer
    The index is data, the flag a claim about it. Every input's group is stored, and it is a valid assignment.

    ## What it cannot do
    Make an engine support activation order under tensor parallelism.
    """
    is_idle = job.finding.fold == "idle"
    for file, key in dict.fromkeys(job.quantization_keys()):
        leaf = key.rpartition(".")[2]
        if leaf == "actorder":
            job.set_key(file, key, None if is_idle else "group", "as the group index is stored")
        elif leaf == "desc_act":
            job.set_key(file, key, not is_idle, "as the group index is stored")
        else:
            raise CannotRepair(f"{key} is not known to declare an order")
