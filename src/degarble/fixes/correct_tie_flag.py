"""`tie_word_embeddings` as the stored head says."""

from __future__ import annotations

from degarble.evidence.model import ModelConfig
from degarble.fixes.interface import repair
from degarble.fixes.job import Job

KEY = "tie_word_embeddings"


@repair("correct-tie-flag")
def correct_tie_flag(job: Job) -> None:
    """Set the flag to false beside a head of its own, at every level of the config that has it.

    ## What it changes
    `tie_word_embeddings` in config.json, the outer one and the language model's.

    ## Why there is one answer
    The stored head has other values than the embedding. A flag that throws it away cannot be meant, and readers that
    ignore the flag use the head already.

    ## What it cannot do
    Where two levels contradict each other and no head is stored, setting both to true is a judgement: the head may have
    been lost.
    """
    has_head = job.modules.by_canonical.get("lm_head") is not None
    if not has_head:
        job.judge("a head may have been lost; without one, only a tied model makes sense")
    write_flag(job, tied=not has_head)


@repair("restore-or-tie-head")
def restore_or_tie_head(job: Job) -> None:
    """Declare a model without a head tied.

    ## What it changes
    `tie_word_embeddings` in config.json, set to true at every level.

    ## Why there is one answer
    There is not: the head may have been lost. With a reference the flag or the head is copied from it instead.

    ## What it cannot do
    Bring back a head. If the source model is untied, fetch `lm_head` from it.
    """
    job.judge("a model without a head may be tied, or may have lost it")
    write_flag(job, tied=True)


def write_flag(job: Job, *, tied: bool) -> None:
    """At every level that has the flag; at the language model's if none has."""
    config: ModelConfig = job.need("model_config")
    keys = [KEY] if KEY in config.values else []
    inner = config.places.get(KEY)
    if inner is not None and inner not in keys:
        keys.append(inner)
    for key in keys or [KEY]:
        job.set_key(config.file, key, tied, "the stored head decides")
