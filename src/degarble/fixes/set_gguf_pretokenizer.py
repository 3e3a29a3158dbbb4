"""The name of a GGUF vocabulary's pre-tokenizer."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job

STRING = (8, None)
KEY = "tokenizer.ggml.pre"


@repair("set-gguf-pretokenizer")
def set_gguf_pretokenizer(job: Job) -> None:
    """Write the pre-tokenizer that the vocabulary's family needs.

    ## What it changes
    `tokenizer.ggml.pre`.

    ## Why there is one answer
    The vocabulary is recognised, and its family is cut in one way.

    ## What it cannot do
    Name the cuts of a vocabulary that no table knows.
    """
    name, fix = job.finding.bound.get("pre"), job.finding.fix
    if fix is None or not fix.safe or not isinstance(name, str):
        raise job.cannot("the family of this vocabulary is not known", files=[job.finding.location.file or ""])
    if job.finding.location.file is None:
        raise CannotRepair("the finding names no file")
    job.set_metadata(job.finding.location.file, KEY, name, STRING, "as the vocabulary's family is cut")
