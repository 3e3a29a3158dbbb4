"""TOK412: `tokenizer.ggml.pre` of a GGUF file is missing, unknown, or another family's."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checkpoint.gguf import GgufFile
from degarble.checks.text.pretokenizer_lost import unreachable_pieces
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.cut_families import CutFamily, Recognised, ordinary_pieces
from degarble.tokenizer.cut_statistics import cut_statistics
from degarble.tokenizer.cuts import FALLBACK, WITH_CUTS, Cutter, byte_level, gguf_pretokenizers
from degarble.tokenizer.gguf_vocabulary import PREFIX
from degarble.tokenizer.interface import Tokenizer

KEY = f"{PREFIX}pre"
EXPLAINED_BY = ("CKP105", "TOK407", "TOK413")


@check("TOK412", symptom_of=EXPLAINED_BY)
def gguf_pretokenizer_wrong(
    gguf: GgufFile, tokenizer: Tokenizer, cut_family: Recognised | None = None
) -> Iterator[Finding]:
    """The name of the pre-tokenizer in a GGUF file is missing, unknown to llama.cpp, or another family's.

    ## What it looks for
    `tokenizer.ggml.pre`, where `tokenizer.ggml.model` is `gpt2`. The name has to be one of the 91 that llama.cpp
    knows, and its cuts those of the family that the vocabulary belongs to: recognised by all ordinary pieces in order,
    or by special tokens at their ids. Names that stand for the same regex are equal. A vocabulary of no
    known family is asked itself, as in TOK419.

    ## Why output turns to garbage
    A GGUF file has no regex, only this name. Without it llama.cpp cuts as `default` does, with another family's name as
    that family; ids are then not those of the training, and every one of them decodes well. `llama-bpe` also turns
    BOS on. A name that llama.cpp does not know stops the load.

    ## What you will see
    Unknown: `unknown pre-tokenizer type`, and no answer. Wrong or missing: arithmetic, code and non-Latin text get
    worse, prompts are a few per cent longer, nothing is garbled; the log says that generation quality will be degraded.

    ## How to tell it from its look-alikes
    Sentencepiece vocabularies (`llama`, `t5`) do not use the key: silent whatever it says. Models of one vocabulary
    under several names (`qwen2`, `deepseek-r1-qwen`) are equal. A GGUF file made for a fork of llama.cpp may have a name
    of its own, which the original refuses. The architecture proves nothing: distilled models have another's vocabulary.

    ## How to confirm
    `gguf-dump --no-tensors FILE | grep tokenizer.ggml.pre`, and compare ids of `1234567` with the original model's.

    ## How to repair it
    `gguf-new-metadata --pre-tokenizer NAME IN OUT`. Safe unattended where the family is known, since then one name is
    right; otherwise convert again.

    ## References
    ollama/ollama#4126, ggml-org/llama.cpp#5981, ggml-org/llama.cpp#14642, Luce-Org/lucebox#660
    """
    if tokenizer.pipeline.get("model") != WITH_CUTS:
        return
    family = cut_family.family if cut_family is not None and cut_family.family.gguf_cuts else None
    place = Location(file=gguf.file, key=KEY)
    found = gguf.text(KEY)
    known = gguf_pretokenizers().get(found or "")
    if found == "" or KEY not in gguf.metadata:
        yield _missing(place, family)
    elif known is None:
        yield _unknown(place, "no text" if found is None else repr(found[:80]), family)
    elif family is not None:
        if known.cuts != family.gguf_cuts:
            exact = cut_family is not None and cut_family.vocabulary is not None
            yield _foreign(place, str(found), family, Confidence.PROVEN if exact else Confidence.LIKELY)
    elif known.regexes is not None and tokenizer.kind == "byte-level":
        cutter = Cutter(None, byte_level(known.regexes), gguf.file)
        yield from unreachable_pieces(cut_statistics(ordinary_pieces(tokenizer), cutter), place)


def _missing(place: Location, family: CutFamily | None) -> Finding:
    right = "" if family is None else f"; this vocabulary is {family.name}'s, which needs {family.gguf_name!r}"
    return Finding(
        location=place,
        message=f"{place.file}: no {KEY}: llama.cpp cuts text as {FALLBACK!r} does{right}",
        severity=Severity.WARNING,
        measured={"pre": None},
        bound={"pre": family.gguf_name if family else "a name"},
        fix=_fix(family),
    )


def _unknown(place: Location, found: str, family: CutFamily | None) -> Finding:
    right = "" if family is None else f"; this vocabulary is {family.name}'s, which needs {family.gguf_name!r}"
    return Finding(
        location=place,
        message=f"{place.file}: {KEY} is {found}, which llama.cpp does not know: it refuses the file{right}",
        measured={"pre": found},
        bound={"pre": family.gguf_name if family else "a known name"},
        fix=_fix(family),
        predicts="the file does not load: unknown pre-tokenizer type",
    )


def _foreign(place: Location, found: str, family: CutFamily, confidence: Confidence) -> Finding:
    return Finding(
        location=place,
        message=f"{place.file}: {KEY} is {found!r}, and the vocabulary is {family.name}'s, which is cut as "
        f"{family.gguf_name!r}",
        confidence=confidence,
        measured={"pre": found},
        bound={"pre": family.gguf_name},
        fix=_fix(family),
    )


def _fix(family: CutFamily | None) -> Fix:
    return Fix(id="set-gguf-pretokenizer", safe=family is not None)
