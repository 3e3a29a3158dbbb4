"""CKP108: a file's sha256 is not the one its origin vouches for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.evidence.digests import Digest
from degarble.finding import Finding, Fix, Location
from degarble.registry import Level, check


@check("CKP108", level=Level.CONTENT, symptom_of=("CKP101", "CKP105"))
def digest_mismatch(digests: Mapping[str, Digest], measured_digests: Mapping[str, str]) -> Iterator[Finding]:
    """A weight file's sha256 differs from the digest that came with it.

    ## What it looks for
    Digests at hand: the blob name in a hub cache, the note that `hf download --local-dir` leaves in
    `.cache/huggingface/download`, and lists such as `SHA256SUMS` in the folder. Only files that have one are hashed,
    the largest first.

    ## Why output turns to garbage
    The header is intact, the length is right, and somewhere in the data bytes are not those that were published: a
    flipped bit on a disk, a block of zeros from an interrupted copy, a mirror that served another revision. A single
    scale changed this way can blow up a whole layer.

    ## What you will see
    Anything from nothing to uniform NaN, whatever the version of the software, on this machine only.

    ## How to tell it from its look-alikes
    A file that was changed on purpose (fine-tuned, quantised again in place) differs too: then the digest is what is
    out of date. A file that is too short is CKP101 and explains the digest.

    ## How to confirm
    `sha256sum FILE` on a second machine that holds the model.

    ## How to repair it
    Fetch the file again, by its digest. There is nothing in the folder to repair it from, so it is not safe unattended.

    ## References
    jsboige/CoursIA#14979
    """
    for name, found in measured_digests.items():
        expected = digests[name]
        if found != expected.sha256:
            yield Finding(
                location=Location(file=name),
                message=f"{name} has sha256 {found[:16]}…, {expected.origin} says {expected.sha256[:16]}…",
                measured={"sha256": found},
                bound={"sha256": expected.sha256},
                fix=Fix(id="fetch-file", safe=False),
            )
