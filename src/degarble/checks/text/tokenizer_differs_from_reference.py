"""TOK417: the tokenizer is not the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.errors import EvidenceMissing
from degarble.evidence.store import Evidence
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import Level, check
from degarble.tokenizer.cut_families import probes
from degarble.tokenizer.gguf_vocabulary import PREFIX
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.pipeline_difference import Divergence, divergences
from degarble.tokenizer.round_trip import probe_texts
from degarble.tokenizer.vocabulary_difference import Difference, Kind, differences

COPY_FROM_REFERENCE = Fix(id="copy-tokenizer-from-reference", safe=False)
SEVERITIES: Mapping[Kind, Severity] = {
    Kind.GAINED_ADDED: Severity.INFO,
    Kind.GAINED: Severity.WARNING,
    Kind.RENAMED: Severity.WARNING,
    Kind.FLAGS: Severity.WARNING,
}
"""All others are errors."""
SAID: Mapping[Kind, str] = {
    Kind.CHANGED: "ids have another text",
    Kind.RENAMED: "added tokens have another text",
    Kind.LOST: "ids have no text any more",
    Kind.GAINED_ADDED: "added tokens are new",
    Kind.GAINED: "ordinary pieces are new",
    Kind.NOT_SPECIAL: "special tokens are no longer special",
    Kind.FLAGS: "added tokens are found in text in another way",
    Kind.MERGES: "merges differ",
}
JSON_KEYS = {
    Kind.MERGES: "model.merges",
    Kind.CHANGED: "model.vocab",
    Kind.LOST: "model.vocab",
    Kind.GAINED: "model.vocab",
}
GGUF_KEYS = {Kind.MERGES: f"{PREFIX}merges", Kind.NOT_SPECIAL: f"{PREFIX}token_type"}
EXPLAINED_BY = (
    "CKP105", "TOK401", "TOK402", "TOK404", "TOK405", "TOK407", "TOK408", "TOK409", "TOK410", "TOK412", "TOK413", "TOK414",
    "TOK419",
)  # fmt: skip


@check("TOK417", level=Level.REFERENCE, symptom_of=EXPLAINED_BY)
def tokenizer_differs_from_reference(tokenizer: Tokenizer, reference: Evidence) -> Iterator[Finding]:
    """Pieces, merges, special tokens or pipeline of the tokenizer are not the reference's.

    ## What it looks for
    The text of every id, the list of merges, which added tokens are special and how they are found in text; and what
    normaliser, pre-tokenizer and decoder do to probe texts, not how they are written. The two may be stored in
    different forms: a GGUF file is compared with a tokenizer.json in what both have, `[PAD151669]` being no token.

    ## Why output turns to garbage
    Ids are rows of the embedding, learnt under the reference's tokenizer. Any other text of an id, order of merges or
    cut gives the model other input than it was trained with, or shows other output than it meant.

    ## What you will see
    Anything between a slightly worse model (merges, cuts, normaliser) and fluent nonsense (ids).

    ## How to tell it from its look-alikes
    New added tokens are what a fine-tune leaves: an info. Reserved tokens that got a name, new ordinary pieces and other
    flags of added tokens are warnings, and so are the cuts of a GGUF file, which is given the nearest name that llama.cpp
    has. A file that contradicts itself is named by its own rule (TOK401 to TOK419), which explains this one. A reference
    of another family differs in everything: compare the model with its own source.

    ## How to confirm
    Encode a page of text with both and compare the ids.

    ## How to repair it
    Copy the tokenizer files of the reference. Not safe unattended: a fine-tune may have been trained with the changed
    ones, and added tokens of its own would be lost.

    ## References
    Lex-au/Orpheus-FastAPI#65, unslothai/unsloth#188, oobabooga/textgen#931, huggingface/transformers#42299
    """
    theirs = reference.find("tokenizer")
    if not isinstance(theirs, Tokenizer):
        raise EvidenceMissing("the reference has no tokenizer that can be read")
    for difference in differences(tokenizer, theirs):
        yield _difference(tokenizer.file, difference)
    for divergence in divergences(tokenizer, theirs, [*probes(), *probe_texts()]):
        is_converted = tokenizer.file.endswith(".gguf") != theirs.file.endswith(".gguf")
        yield _divergence(tokenizer.file, divergence, Severity.WARNING if is_converted else None)


def _difference(file: str, found: Difference) -> Finding:
    where = "merge" if found.kind is Kind.MERGES else "id"
    return Finding(
        location=Location(file=file, key=_key(file, found.kind)),
        message=f"{file}: {found.count} {SAID[found.kind]}, first {where} {found.at}: {found.found:.80}, the reference "
        f"has {found.expected:.80}",
        severity=SEVERITIES.get(found.kind),
        measured={found.kind.value: found.count, "first": found.at, "found": found.found[:200]},
        bound={found.kind.value: 0, "reference": found.expected[:200]},
        fix=COPY_FROM_REFERENCE,
    )


def _key(file: str, kind: Kind) -> str | None:
    if file.endswith(".json"):
        return JSON_KEYS.get(kind, "added_tokens")
    return GGUF_KEYS.get(kind, f"{PREFIX}tokens") if file.endswith(".gguf") else None


def _divergence(file: str, found: Divergence, severity: Severity | None) -> Finding:
    key = found.part if file.endswith(".json") else f"{PREFIX}pre"
    probe = f" turns {found.text!r:.60} into" if found.text else " is"
    return Finding(
        location=Location(file=file, key=key),
        message=f"{file}: {key}{probe} {found.found:.120}; the reference has {found.expected:.120}",
        severity=severity,
        measured={"found": found.found[:200]},
        bound={"reference": found.expected[:200]},
        fix=COPY_FROM_REFERENCE,
    )
