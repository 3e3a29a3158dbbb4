"""CFG106: an untied model without its output head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from degarble.evidence.disk_names import DiskNames
from degarble.evidence.model import ModelConfig
from degarble.evidence.parameters import Parameters
from degarble.finding import Finding, Fix
from degarble.registry import check

HEADLESS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForRewardModel", "ForQuestionAnswering")
"""Endings of class names whose models produce no logits over the vocabulary."""


@check("CFG106", symptom_of=("CKP101", "CKP102", "CKP103", "CKP105", "CFG110", "QNT102"))
def lm_head_missing(
    parameters: Parameters, disk_names: DiskNames, model_config: ModelConfig, is_gguf: bool
) -> Iterator[Finding]:
    """The config does not tie the embeddings, and no output head is stored.

    ## What it looks for
    `tie_word_embeddings` of the language model (its own level, the outer level, then the family's default) false, and
    no part of `lm_head` in any file. GGUF has no such flag: a file without `output.weight` is tied, and legal.

    ## Why output turns to garbage
    The head turns hidden states into logits. A head that is built and never filled gives logits of noise; all layers
    before it may be perfect.

    ## What you will see
    One token over and over, or uniformly random tokens in many scripts; perplexity near the size of the vocabulary.
    Files are smaller than the official ones by vocabulary x hidden size. Strict loaders name the missing key.

    ## How to tell it from its look-alikes
    With the flag true a missing head is how tied models are saved. Classifiers, reward models and bare decoders have no
    head: the class name says so, and this check is silent. A lost file is CKP102. A head whose scales alone are there
    is QNT102, which explains this.

    ## How to confirm
    Look for `lm_head` in the shard headers, and compare the file size with the source model's.

    ## How to repair it
    If the source model is tied, set the flag to true. Otherwise copy the head from the source. The folder alone does
    not tell which, so it is not safe unattended.

    ## References
    casper-hansen/AutoAWQ#665
    """
    if is_gguf or parameters.head is None or is_headless(model_config):
        return
    place = model_config.place("tie_word_embeddings")
    lost = disk_names.place(parameters.head, (None, None))
    head = replace(lost, file=place.file, key=place.key)
    yield Finding(
        location=head,
        places=(head, lost),
        message=f"{lost.tensor} is stored nowhere, and tie_word_embeddings is false"
        + ("" if "tie_word_embeddings" in {**model_config.values, **model_config.text} else " by default"),
        measured={"lm_head": "absent", "tie_word_embeddings": False},
        bound={"lm_head": "stored"},
        fix=Fix(id="restore-or-tie-head", safe=False),
    )


def is_headless(model_config: ModelConfig) -> bool:
    """Whether the config's class has no output head."""
    classes = model_config.values.get("architectures")
    if not isinstance(classes, list) or not classes or not isinstance(classes[0], str):
        return False
    return classes[0].endswith(HEADLESS)
