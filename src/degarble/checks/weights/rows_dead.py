"""WGT205: outputs of a linear that are zero for every input, and holes in its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.dead_outputs import DeadOutputs
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

MANY_ROWS = 8
MANY_SHARE = 0.02
"""Above either, it is an error: healthy matrices have no dead row (0 rows in 210 matrices in 5 forms)."""
JUDGED = ("linear", "router")
EXPLAINED_BY = ("WGT201", "WGT202", "WGT204", *DAMAGED_FILE, *WRONG_READING)


@check("WGT205", level=Level.CONTENT, symptom_of=EXPLAINED_BY)
def rows_dead(modules: Modules, dead_outputs: Mapping[str, DeadOutputs]) -> Iterator[Finding]:
    """Some outputs of a linear are zero for every input: their rows hold nothing but zeros.

    ## What it looks for
    Rows of a weight that decode to zeros only, among all rows, in every format: by value, by code and zero point, or by
    scale. Eight rows or 2 % are an error, fewer a warning. Rows that the same module lacks in most other layers as well
    are counted off, and so is padding: the last rows, as many in every layer. A stretch of at least 4 KB that repeats
    one word inside packed codes is a hole and is an error too. Exact; healthy: 0 dead rows in 210 matrices, each in
    bf16, FP8, NVFP4, INT4 and INT8.

    ## Why output turns to garbage
    The heads or neurons behind those rows are gone. A packaging step wrote a fused tensor in parts and lost one; a
    shard was merged at the wrong offset; a download has a hole.

    ## What you will see
    From slightly worse to incoherent text, depending on the module: one published model had half of the key rows of its
    first layer at zero and could not generate a sentence.

    ## How to tell it from its look-alikes
    One scale for a whole matrix of 4-bit codes rounds small rows to zero in every layer alike (1,473 such rows in one
    healthy model): expected from its peers, so silent. Intermediate sizes padded for tensor parallelism end in zero
    rows everywhere. bitsandbytes stores no rows, so its bytes are decoded first. Whole matrices are WGT204, rows of the
    embedding WGT226, zero scales WGT202.

    ## How to confirm
    Decode the rows of the finding and compare them with the source model.

    ## How to repair it
    Fetch the file again or package it again from the source. Not safe unattended: only the source has the rows.

    ## References
    ollama/ollama#15866
    """
    found: dict[str, list[tuple[StoredModule, DeadOutputs]]] = {}
    for name, dead in dead_outputs.items():
        found.setdefault(modules[name].template, []).append((modules[name], dead))
    for members in found.values():
        if any(dead.count for _, dead in members):
            yield from _judge(members)


def _judge(members: list[tuple[StoredModule, DeadOutputs]]) -> Iterator[Finding]:
    """One module in all layers and experts."""
    counts = np.array([dead.count for _, dead in members])
    for index, (module, found) in enumerate(members):
        dead = found.count
        if not dead or dead >= found.num_outputs:  # WGT204 has whole matrices
            continue
        others = np.delete(counts, index)
        expected = 0 if not others.size or (len(others) < 3 and not others.all()) else int(np.median(others))
        is_padding = bool(others.size) and bool((others == dead).all()) and _ends_in(found)
        if not is_padding and dead > 2 * expected:
            yield _finding(module, found, dead - expected, expected)


def _ends_in(found: DeadOutputs) -> bool:
    """Whether the dead rows are the last ones."""
    rows, dead = found.rows, found.count
    return len(rows) == dead and rows == tuple(range(found.num_outputs - dead, found.num_outputs))


def _finding(module: StoredModule, found: DeadOutputs, excess: int, expected: int) -> Finding:
    share = found.count / found.num_outputs
    is_many = excess >= MANY_ROWS or excess >= MANY_SHARE * found.num_outputs
    first = found.rows[0] if found.rows else None
    peers = f"; the median of its peers is {expected}" if expected else "; its peers have none"
    return Finding(
        location=replace(module.place(), row=first),
        message=f"{module.any_part.name}: {found.count} of {found.num_outputs} outputs ({share:.1%}) are zero "
        f"for every input, the first is {first}{peers}",
        severity=None if is_many else Severity.WARNING,
        measured={"dead_rows": found.count, "share": round(share, 4), "first": first},
        bound={"dead_rows_max": MANY_ROWS - 1, "share_max": MANY_SHARE, "expected": expected},
        fold="dead",
        fix=Fix(id="restore-module", safe=False),
    )


@check("WGT205", level=Level.CONTENT, confidence=Confidence.LIKELY, symptom_of=EXPLAINED_BY)
def bytes_repeated(
    modules: Modules, profiles: Mapping[str, TensorProfile], dead_outputs: Mapping[str, DeadOutputs]
) -> Iterator[Finding]:
    """A stretch of packed codes repeats one word."""
    for module in modules.values():
        if (dead := dead_outputs.get(module.name)) is not None and dead.count:
            continue
        payload = module.payload
        profile = profiles.get(payload.name) if payload is not None else None
        if profile is None or not profile.flat_bytes or profile.constant is not None or not module.form.is_quantized:
            continue
        if module.kind not in JUDGED or profile.zero_rows.count or profile.constant_rows.count or profile.count:
            continue
        yield Finding(
            location=replace(module.place(), byte_offset=profile.first_flat),
            message=f"{profile.name}: {profile.flat_bytes} bytes of packed codes repeat one word, from byte "
            f"{profile.first_flat} of the tensor on: a hole",
            measured={"flat_bytes": profile.flat_bytes},
            bound={"flat_bytes": 0},
            fold="hole",
            fix=Fix(id="fetch-file", safe=False),
        )
