"""TOK419: text is cut in other places than the vocabulary was trained with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from degarble.errors import EvidenceMissing
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.registry import check
from degarble.tokenizer.bpe_encoder import bpe_of
from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.cut_families import CutFamily, PublishedVocabulary, Recognised, ordinary_pieces
from degarble.tokenizer.cut_statistics import CutStatistics, cut_statistics
from degarble.tokenizer.cuts import Cutter, byte_level, gguf_pretokenizers
from degarble.tokenizer.interface import Tokenizer

COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)
SET_FLAG = Fix(id="set-ignore-merges", safe=True)
MAX_SHARE_APART = 0.05
SUSPICIOUS_SHARE_APART = 0.025
"""Twice the worst published file: Qwen's own pre-tokenizer cuts 1.2 % of Qwen's pieces."""
CONTEXT_CUTS = 3
PLAIN = "gpt-2"
EXPLAINED_BY = ("TOK407", "TOK408", "TOK410", "TOK413")


@check("TOK419", symptom_of=EXPLAINED_BY)
def pretokenizer_lost(
    tokenizer: Tokenizer, stored_tokenizer: StoredTokenizer, cut_family: Recognised
) -> Iterator[Finding]:
    """The pre-tokenizer cuts text in other places than the vocabulary was trained with.

    ## What it looks for
    The family is recognised by its vocabulary: all ordinary pieces in order, or special tokens at their ids and the
    size. Six probe texts (digits, line breaks, contractions, Chinese, Thai and Hindi, emoji, odd spaces) go through the
    stored pre-tokenizer and have to be cut as the family's published file cuts them; how a regex is written does not
    matter. Where the vocabulary is the published one, other cuts count only if ids change; the ids of the probes are
    checked too, and `ignore_merges` where it matters (a warning: 0.5 % of Llama 3's pieces). Families that are known
    from GGUF files only (SmolLM2, StarCoder …) are judged at any size, and may have GPT-2's regex alone.

    A byte-level vocabulary of no known family is asked itself. A sample of 2,000 pieces is cut: 5 % in parts is an
    error, 2.5 % a warning (published files: 0 to 0.02 %, Qwen 1.2 %; foreign cuts: 1 to 22 %). And where words are not
    cut at all, some pieces have to go across words.

    ## Why output turns to garbage
    A merge never crosses a cut. With other cuts the same text becomes ids that the model has rarely or never seen.
    Converters that do not know a regex put GPT-2's in its place, or none.

    ## What you will see
    Nothing garbled: every id decodes, the text comes back. Arithmetic, code and non-Latin text get worse; prompts are
    up to a tenth longer. Chinese-only text may show nothing at all.

    ## How to tell it from its look-alikes
    A round trip that fails is TOK408, a wrong decoder TOK407, a normaliser TOK416. In GGUF the cuts are a name, which
    TOK412 judges. Qwen with the regex of Llama 3 has other cuts and equal ids: silent. A class in
    `tokenizer_config.json` that replaces sound cuts is TOK418.

    ## How to confirm
    Encode `1234567` and `x\\n\\n  y` with this file and with the original, and compare the ids.

    ## How to repair it
    Copy `pre_tokenizer` from the original tokenizer.json. Not safe unattended: a fine-tune may have been trained with
    the wrong cuts, and then needs them. `ignore_merges` alone is safe to set.

    ## References
    ollama/ollama#4126, huggingface/transformers#42299, Luce-Org/lucebox#660, ggml-org/llama.cpp#14642
    """
    family, vocabulary = cut_family.family, cut_family.vocabulary
    if not cut_family.has_json_cuts:
        raise EvidenceMissing(f"the cuts of {family.name} with a vocabulary of this size are not written down")
    if family.needs_ignore_merges and stored_tokenizer.model.get("ignore_merges") is not True:
        yield _other_flag(stored_tokenizer, family)
    cutter = Cutter(None, stored_tokenizer.parts.get("pre_tokenizer"), stored_tokenizer.file)
    found = [cutter.cuts(_text(cuts)) for cuts in family.cuts]
    other = [probe for probe, cuts in enumerate(found) if not family.is_cut(cuts, probe)]
    if other and not family.is_from_json and found == _plain_cuts(family):
        return
    if vocabulary is not None:
        yield from _judged_by_ids(tokenizer, family, vocabulary, found, other)
    elif other:
        yield _other_cuts(stored_tokenizer.file, family, other[0], found[other[0]], len(other))


def _plain_cuts(family: CutFamily) -> list[list[str]]:
    """GPT-2's regex alone: what a tokenizer.json made from a GGUF file has, and files of small vocabularies get by with."""
    cutter = Cutter(None, byte_level(gguf_pretokenizers()[PLAIN].regexes or ()))
    return [cutter.cuts(_text(cuts)) for cuts in family.cuts]


def _judged_by_ids(
    tokenizer: Tokenizer,
    family: CutFamily,
    vocabulary: PublishedVocabulary,
    found: Sequence[Sequence[str]],
    other: Sequence[int],
) -> Iterator[Finding]:
    """Merges are read only where something is not as published."""
    if not vocabulary.ids or (not other and tokenizer.merges.digest in vocabulary.merges):
        return
    bpe = bpe_of(tokenizer)
    for probe, cuts in enumerate(found):
        expected = [at for cut in family.cuts[probe] for at in bpe.encode(cut)]
        ids = [at for cut in cuts for at in bpe.encode(cut)]
        if probe in other and ids != expected:
            yield _other_cuts(tokenizer.file, family, probe, cuts, len(other), (ids, expected))
            return
    for probe, published in enumerate(vocabulary.ids):
        ids = [at for cut in family.cuts[probe] for at in bpe.encode(cut)]
        if tuple(ids) != published:
            yield _other_ids(tokenizer.file, family, probe, ids, published)
            return


def _text(cuts: Sequence[str]) -> str:
    """A probe as the family's normaliser leaves it: cuts lose nothing."""
    joined = "".join(cuts)
    data = letters_to_bytes(joined)
    return joined if data is None else data.decode("utf-8", "replace")


def _other_cuts(
    file: str,
    family: CutFamily,
    probe: int,
    found: Sequence[str],
    num_other: int,
    ids: tuple[Sequence[int], Sequence[int]] | None = None,
) -> Finding:
    expected = family.cuts[probe]
    at = _first_difference(found, expected)
    shown = [[_text([cut]) for cut in cuts[max(0, at - 1) : at + CONTEXT_CUTS]] for cuts in (found, expected)]
    message = f"{file}: pre_tokenizer cuts {shown[0]} where {family.name}, whose vocabulary this is, cuts {shown[1]}"
    if ids is not None:
        first = _first_difference(*ids)
        message += f"; ids {list(ids[0][first : first + 4])} instead of {list(ids[1][first : first + 4])}"
    return Finding(
        location=Location(file=file, key="pre_tokenizer"),
        message=message,
        confidence=Confidence.LIKELY if ids is None else Confidence.PROVEN,
        measured={"cuts": list(shown[0]), "probes_cut_otherwise": num_other},
        bound={"cuts": list(shown[1]), "probes_cut_otherwise": 0},
        fix=COPY_FROM_ORIGINAL,
    )


def _first_difference(found: Sequence[object], expected: Sequence[object]) -> int:
    return next((n for n, pair in enumerate(zip_longest(found, expected)) if pair[0] != pair[1]), 0)


def _other_ids(file: str, family: CutFamily, probe: int, ids: Sequence[int], published: Sequence[int]) -> Finding:
    first = _first_difference(ids, published)
    return Finding(
        location=Location(file=file, key="model.merges"),
        message=f"{file}: model.merges: pieces and cuts are those of {family.name}, and {_text(family.cuts[probe])!r:.60} "
        f"becomes ids {list(ids[first : first + 4])} where {list(published[first : first + 4])} was published",
        measured={"ids": list(ids[first : first + 8])},
        bound={"ids": list(published[first : first + 8])},
        fix=COPY_FROM_ORIGINAL,
    )


def _other_flag(stored: StoredTokenizer, family: CutFamily) -> Finding:
    found = stored.model.get("ignore_merges")
    return Finding(
        location=Location(file=stored.file, key="model.ignore_merges"),
        message=f"{stored.file}: model.ignore_merges is {found!r:.40}, and {family.name} needs true: words that are a "
        "piece, and that merges do not lead to, become other ids",
        severity=Severity.WARNING,
        measured={"ignore_merges": found is True},
        bound={"ignore_merges": True},
        fix=SET_FLAG,
    )


@check("TOK419", confidence=Confidence.LIKELY, symptom_of=EXPLAINED_BY)
def pieces_cut_apart(
    tokenizer: Tokenizer, stored_tokenizer: StoredTokenizer, cut_family: Recognised | None = None
) -> Iterator[Finding]:
    """Of a vocabulary that no table knows, only what it says itself can be judged."""
    if tokenizer.kind != "byte-level" or (cut_family is not None and cut_family.has_json_cuts):
        return
    cutter = Cutter(None, stored_tokenizer.parts.get("pre_tokenizer"), stored_tokenizer.file)
    yield from unreachable_pieces(
        cut_statistics(ordinary_pieces(tokenizer), cutter), Location(file=tokenizer.file, key="pre_tokenizer")
    )


def unreachable_pieces(found: CutStatistics, place: Location) -> Iterator[Finding]:
    """Findings of a pre-tokenizer that is stored at a place."""
    if found.is_uncut:
        yield Finding(
            location=place,
            message=f"{place.name()}: words are not cut, although none of the vocabulary's pieces goes across two words: "
            f"it was trained with cuts ({found.num_word_pieces} pieces begin a word)",
            measured={"pieces_across_words": 0},
            bound={"pieces_across_words_at_least": 1},
            fix=COPY_FROM_ORIGINAL,
        )
    if found.share_apart >= SUSPICIOUS_SHARE_APART:
        shown = ", ".join(map(repr, found.apart))
        yield Finding(
            location=place,
            message=f"{place.name()}: {found.share_apart:.1%} of the vocabulary's pieces are cut apart, such as {shown}: "
            "no text can become them, so they were made with other cuts",
            severity=None if found.share_apart >= MAX_SHARE_APART else Severity.WARNING,
            measured={"share_cut_apart": round(found.share_apart, 4)},
            bound={
                "share_cut_apart": MAX_SHARE_APART if found.share_apart >= MAX_SHARE_APART else SUSPICIOUS_SHARE_APART
            },
            fix=COPY_FROM_ORIGINAL,
        )
