"""Exact copies of tokenizer and template files from the reference."""

from __future__ import annotations

from degarble.finding import Location
from degarble.fixes.interface import CannotRepair
from degarble.fixes.job import Job
from degarble.fixes.reference import Reference, is_equal_tensor

TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
"""They belong together: quantising changes none of them."""


def restore_text(job: Job, reference: Reference, places: list[Location]) -> None:
    """Make the named text files what they are in the reference, and all of them if the named ones are.

    Files that the reference does not have are left out. Raises CannotRepair if its embedding is not this model's.
    """
    named = [place.file for place in places if place.file in TEXT_FILES]
    _require_same_vocabulary(job, reference)
    for name in dict.fromkeys(named):
        _mirror(job, reference, name)
    if not job.edits:
        for name in TEXT_FILES:
            _mirror(job, reference, name)


def _mirror(job: Job, reference: Reference, name: str | None) -> None:
    if name is None:
        return
    if name in reference.source.files():
        job.copy_file(name, reference.source, name)
    elif name in job.workspace.files():
        job.delete_file(name, "not in the reference")


def _require_same_vocabulary(job: Job, reference: Reference) -> None:
    """The embedding's rows are what token ids mean: equal bytes, or, stored in two forms, as many rows."""
    mine, theirs = (modules.by_canonical.get("model.embed_tokens") for modules in (job.modules, reference.modules))
    if mine is None or theirs is None or mine.payload is None or theirs.payload is None:
        raise CannotRepair("without an embedding, the reference cannot be recognised as the same model")
    one, other = mine.payload, theirs.payload
    source = job.evidence.get("source")
    is_stored_alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    if is_stored_alike and not is_equal_tensor(source, one, reference.source, other):
        raise CannotRepair("the reference's embedding is another model's")
    rows, wanted = mine.form.shape, theirs.form.shape
    if not is_stored_alike and (rows is None or wanted is None or rows[0] != wanted[0]):
        raise CannotRepair(f"the reference's embedding is {list(wanted or ())}, this one is {list(rows or ())}")
