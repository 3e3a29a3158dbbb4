"""Checksum lists in the folder follow what repairs change: a right line about an edited file becomes right again."""

from __future__ import annotations

import re

from degarble.checkpoint.digest_manifest import MAX_MANIFEST_BYTES, is_manifest, read_manifest
from degarble.checkpoint.interface import Source
from degarble.fixes.job import Job
from degarble.fixes.reference import sha256_of


def refresh_manifests(job: Job) -> None:
    """Rewrite the lines about files that this job edited, if they were right before it.

    A line that was wrong already stays, so that the finding about it stays too.
    """
    edited = {edit.file for edit in job.edits}
    before: Source = job.evidence.get("source")
    after = job.workspace.source()
    for name in [name for name in job.workspace.files() if is_manifest(name)]:
        if after.files()[name] > MAX_MANIFEST_BYTES:
            continue
        raw = after.read(name)
        new = raw
        for file, digest in read_manifest(raw, name).items():
            if file not in edited or file not in after.files() or file not in before.files():
                continue
            if sha256_of(before, file) == digest:
                new = re.sub(digest.encode(), sha256_of(after, file).encode(), new, flags=re.IGNORECASE)
        if new != raw:
            job.write_file(name, new, "digests of the repaired files")
