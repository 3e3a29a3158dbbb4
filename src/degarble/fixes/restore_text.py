"""Exact copies of tokenizer and template files from the reference."""

from __future__ import annotations

from collections.abc import Iterable

from degarble.fixes.interface import CannotRepair
from degarble.fixes.job import Job
from degarble.fixes.reference import Reference, is_equal_tensor
from degarble.fixes.restore_keys import restore_keys
from degarble.fixes.restore_tensors import restore_tensors
from degarble.formats.interface import StoredModule

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


ENDS = ("model.embed_tokens", "lm_head")
"""Modules with one row for each token id."""


def mirror(job: Job, reference: Reference, names: Iterable[str | None]) -> None:
    """Make text files what they are in the reference; those that it does not have are left out."""
    for name in dict.fromkeys(names):
        if name in reference.source.files() and name is not None:
            job.copy_file(name, reference.source, name)
        elif name in job.workspace.files() and name is not None:
            job.delete_file(name, "not in the reference")


def require_same_vocabulary(job: Job, reference: Reference) -> None:
    """The embedding's rows are what token ids mean: equal bytes, or, stored in two forms, as many rows.

    Raises CannotRepair if the reference's embedding is not this model's.
    """
    mine, theirs = _embeddings(job, reference)
    one, other = mine.payload, theirs.payload
    is_stored_alike = (one.dtype, one.shape) == (other.dtype, other.shape) if one and other else False
    if is_stored_alike and one and other:
        if not is_equal_tensor(job.evidence.get("source"), one, reference.source, other):
            raise CannotRepair("the reference's embedding is another model's")
    elif _rows(mine) != _rows(theirs):
        raise CannotRepair(f"the reference's embedding has {_rows(theirs)} rows, this one {_rows(mine)}")


def restore_vocabulary(job: Job, reference: Reference) -> bool:
    """Bring lost rows of embedding and head back, with the size in the config; False where none are lost."""
    mine, theirs = _embeddings(job, reference)
    if _rows(mine) == _rows(theirs) or mine.form.format != theirs.form.format:
        return False
    places = [found.place() for end in ENDS if (found := job.modules.by_canonical.get(end)) is not None]
    restore_tensors(job, reference, places)
    config = job.evidence.find("model_config")
    if config is not None:
        restore_keys(job, reference, [config.place("vocab_size")])
    return bool(job.edits)


def _embeddings(job: Job, reference: Reference) -> tuple[StoredModule, StoredModule]:
    mine, theirs = (modules.by_canonical.get(ENDS[0]) for modules in (job.modules, reference.modules))
    if mine is None or theirs is None or mine.payload is None or theirs.payload is None:
        raise CannotRepair("without an embedding, the reference cannot be recognised as the same model")
    return mine, theirs


def _rows(module: StoredModule) -> int | None:
    return module.form.shape[0] if module.form.shape else None
