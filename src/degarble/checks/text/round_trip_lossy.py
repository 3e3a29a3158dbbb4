"""TOK408: a text does not come back from its ids."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.round_trip import Loss, coder_of, first_loss
from degarble.tokenizer.stages import stages

COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)
DROP_TRUNCATION = Fix(id="drop-stored-truncation", safe=True)
CONTEXT_BYTES = 24
EXPLAINED_BY = ("TOK404", "TOK407", "TOK409", "TOK410", "TOK412", "TOK413", "TOK414")
REMOVING = ("Removed",)


@check("TOK408", symptom_of=EXPLAINED_BY)
def round_trip_lossy(tokenizer: Tokenizer) -> Iterator[Finding]:
    """A text that is encoded and decoded again does not come back, beside what the normaliser declares.

    ## What it looks for
    Thirty-two short texts in twelve kinds (English, code, Chinese, emoji, Arabic, Thai, marks, control characters) and
    runs of spaces, line breaks and punctuation are cut by the stored normaliser and pre-tokenizer, merged by our own
    encoder and decoded by the table of bytes. What has to come back is the normalised text; one space at the start is
    left to the tokenizer. Vocabularies that are made of bytes (byte-level, byte fallback) can give every text back and
    are held to it. A stored `truncation` is reported as a warning: it cuts prompts in every library that obeys it.

    ## Why output turns to garbage
    The model is asked about another text than the user typed, and what it quotes is not what it was given. Mostly a
    pre-tokenizer that removes what it splits at, or characters that neither a piece nor bytes can spell.

    ## What you will see
    Line breaks, punctuation or spaces missing from prompts and quotations; code that has lost its indentation; unknown
    tokens in place of rare characters; long prompts cut short.

    ## How to tell it from its look-alikes
    Unicode composition and other normalisers are declared losses: TOK416. U+2581 in a text becomes a space in every
    sentencepiece vocabulary. Vocabularies without bytes (T5, BERT) lose rare characters by design: not judged. A decoder
    that does not know the spelling is TOK407, a missing byte TOK409, other cuts without loss TOK419.

    ## How to confirm
    `Tokenizer.from_file("tokenizer.json")`, then `decode(encode(text).ids)` with the text of the finding.

    ## How to repair it
    Copy `pre_tokenizer` and the vocabulary from the original. Not safe unattended, since several repairs would give the
    text back and only one gives the ids of the training. Dropping a stored truncation is safe.

    ## References
    huggingface/transformers#44915, ggml-org/llama.cpp#28862, ollama/ollama#15232
    """
    loss = first_loss(coder_of(tokenizer))
    if loss is not None:
        yield _finding(_place(tokenizer), loss)


def _place(tokenizer: Tokenizer) -> Location:
    """A step that removes text, where there is one."""
    if not tokenizer.file.endswith(".json"):
        return Location(file=tokenizer.file)
    steps = stages(tokenizer.pipeline.get("pre_tokenizer"), "pre_tokenizer")
    removing = any(step.settings.get("behavior") in REMOVING for step in steps)
    return Location(file=tokenizer.file, key="pre_tokenizer" if removing else "model")


def _finding(place: Location, loss: Loss) -> Finding:
    start = max(0, loss.at - CONTEXT_BYTES)
    expected, found = (data[start : loss.at + CONTEXT_BYTES] for data in (loss.expected, loss.found))
    return Finding(
        location=place,
        message=f"{place.name()}: {loss.text[:60]!r} comes back otherwise from byte {loss.at} on: "
        f"{_shown(found)} instead of {_shown(expected)}; {loss.num_lost} of {loss.num_texts} texts are lost",
        measured={"texts_lost": loss.num_lost, "found_bytes": found.hex(" ")},
        bound={"texts_lost": 0, "expected_bytes": expected.hex(" ")},
        fix=COPY_FROM_ORIGINAL,
    )


def _shown(data: bytes) -> str:
    return repr(data.decode("utf-8", "backslashreplace"))


@check("TOK408", severity=Severity.WARNING)
def truncation_stored(stored_tokenizer: StoredTokenizer) -> Iterator[Finding]:
    """A training script that cut its texts leaves the setting in the file it saves."""
    truncation = stored_tokenizer.parts.get("truncation")
    if not isinstance(truncation, dict):
        return
    limit = truncation.get("max_length")
    yield Finding(
        location=Location(file=stored_tokenizer.file, key="truncation"),
        message=f"{stored_tokenizer.file}: truncation is stored: libraries that obey the file cut every text to "
        f"{limit!r:.40} ids; transformers does not",
        measured={"max_length": limit if isinstance(limit, (int, float, str)) else None},
        bound={"max_length": None},
        fix=DROP_TRUNCATION,
        predicts="long prompts are cut short",
    )
