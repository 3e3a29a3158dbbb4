"""Parts of a fused matrix in one form."""

from __future__ import annotations

import numpy as np

from degarble.evidence.fused_groups import FusedGroup
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.fixes.skip_entries import SkipEntries
from degarble.formats.detect import formats
from degarble.formats.interface import PAYLOAD, StoredModule


@repair("unify-fused-group")
def unify_fused_group(job: Job) -> None:
    """Store the quantised parts of a fused group plain, beside those that are plain already, and list them all.

    ## What it changes
    Codes and companions of the quantised parts become one plain weight in the type of the plain parts; the skip list
    names the whole group.

    ## Why there is one answer
    There is not: the plain parts could be quantised instead, which needs a quantiser. Plain weights hold the values of
    the codes, rounded to their type.

    ## What it cannot do
    Save memory: the group takes four times as much in 16 bits as in 4.
    """
    job.judge("the group becomes plain, which costs memory")
    names = {place.module for place in job.places}
    groups: tuple[FusedGroup, ...] = job.need("fused_groups")
    entries = SkipEntries(job)
    listed: list[str] = []
    for group in groups:
        if not any(module.name in names for module in group):
            continue
        plain = next((m for m in group if not m.form.is_quantized and m.payload is not None), None)
        if plain is None:
            raise CannotRepair(f"{group[0].name}: no part is plain")
        for module in group:
            if module.form.is_quantized:
                _store_plain(job, module, plain)
            listed.append(entries.full_entry(module.name))
    entries.write((*entries.entries, *listed), "the whole group is plain")


def _store_plain(job: Job, module: StoredModule, like: StoredModule) -> None:
    try:
        values = module.dequantize()
    except (ValueError, KeyError, NotImplementedError) as error:
        raise CannotRepair(f"{module.name}: {error}") from None
    file = module.any_part.file
    for role, suffix in module.form.roles.items():
        if role != "bias":
            job.drop_tensor(module.parts[suffix], "replaced by plain values")
    name = f"{module.name}.{formats()['plain'].suffix_of(PAYLOAD)}"
    array = np.ascontiguousarray(values.astype(like.array(PAYLOAD).dtype))
    job.add_tensor(file, name, array, "the values of its codes")
