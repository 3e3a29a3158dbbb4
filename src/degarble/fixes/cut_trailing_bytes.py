"""Bytes after the last tensor of a weight file."""

from __future__ import annotations

import re

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.fixes.reference import sha256_of

PLACE = re.compile(r"byte (\d{1,18})\Z")


@repair("cut-trailing-bytes")
def cut_trailing_bytes(job: Job) -> None:
    """Cut a weight file off after its last tensor.

    ## What it changes
    The end of the file: bytes that no tensor claims.

    ## Why there is one answer
    If a digest of the file is at hand and the cut file has it, the file is what was published. Without a digest it is a
    judgement: a download that was resumed at the wrong place may have spoilt more than the end.

    ## What it cannot do
    Repair bytes before the end.
    """
    for name in dict.fromkeys(place.file for place in job.places if place.file):
        shard = job.need("shards").get(name)
        described = (shard.header or shard.gguf) if shard is not None else None
        problems = [one for one in described.problems if one.expected == "the end of the file"] if described else []
        ends = [int(found[1]) for one in problems if (found := PLACE.match(one.place))]
        ends = ends or [place.byte_offset for place in job.places if place.file == name and place.byte_offset]
        if not ends:
            raise CannotRepair(f"where {name} should end is not known")
        job.cut_file(name, ends[0], "cut off after the last tensor")
        digests = job.evidence.find("digests") or {}
        if name not in digests or digests[name].sha256 != sha256_of(job.workspace.source(), name):
            job.judge(f"no digest says that {name} is right without its end")
