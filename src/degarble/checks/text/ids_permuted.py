"""TOK410: ids, merges and scores of a vocabulary are not in one order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checkpoint.gguf import GgufFile
from degarble.errors import EvidenceMissing
from degarble.finding import Confidence, Finding, Fix, Location
from degarble.registry import check
from degarble.tokenizer.cut_families import Recognised, ordinary_pieces
from degarble.tokenizer.gguf_vocabulary import PREFIX
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.piece_order import Disorder, MergeGaps, PieceOrder, order_of_scores, share_not_built
from degarble.tokenizer.scores import scored_pieces

COPY_FROM_ORIGINAL = Fix(id="copy-tokenizer-from-original", safe=False)
MAX_SHARE_UNMADE: Mapping[str, float] = {"byte-level": 0.01, "byte-fallback": 0.1}
"""Published files: 0, and up to 2.6 % where reserved tokens and tags are pieces of a sentencepiece vocabulary."""
MAX_SHARE_NOT_BUILT = 0.1
"""Published sentencepiece files: 0 to 1.5 % (reserved pieces); after shuffling: 36 to 42 %."""
MIN_JUDGED = 200
GGUF_WITH_MERGES = ("gpt2", "gemma4")
EXPLAINED_BY = ("CKP105", "TOK404", "TOK407")


@check("TOK410", symptom_of=EXPLAINED_BY)
def ids_permuted(tokenizer: Tokenizer, cut_family: Recognised | None = None) -> Iterator[Finding]:
    """Ids of the vocabulary do not follow the order in which its merges or scores made the pieces.

    ## What it looks for
    Merges may only take and make pieces that exist, and have to make the longer ones (bound: 1 % unmade; published
    files: 0). Pieces in the order of their first merge have to have rising ids, after the bytes in the order of their
    letters; in a sentencepiece or Unigram vocabulary ids have to fall with the scores. In 27 published vocabularies not
    one piece is out of order, once added tokens and, in
    sentencepiece vocabularies, runs of spaces are left out, so one is too many. A sentencepiece
    vocabulary is also asked whether its pieces are made of two with lower ids (bound: 10 % not; published: up to 1.5 %).
    Where pieces and merges are bit for bit those of a published family, nothing more is looked at.

    ## Why output turns to garbage
    An id is a row of the embedding. If the text of a row is another row's, the model reads other words than were
    written and writes other words than it means.

    ## What you will see
    Fluent sentences with wrong words in them, or word salad in the right alphabet; nothing is garbled, round trips
    succeed. A merge of an unknown piece stops the load; missing merges give prompts of single letters.

    ## How to tell it from its look-alikes
    An id that two texts share is TOK404, one that files disagree about TOK402. Pieces appended later to a sentencepiece
    vocabulary with a score that puts them first are legal: a few long runs, one after the other. What cannot be told
    without a reference (TOK417): one exchange of two pieces that no merge makes, an order that was changed together with
    its merges, and a small block of sentencepiece texts moved while the scores stayed.

    ## How to confirm
    Compare `model.vocab` with the original's.

    ## How to repair it
    Copy the tokenizer from the original model. Not safe unattended: the rows of the embedding may have been moved too.

    ## References
    huggingface/tokenizers#1169, huggingface/tokenizers#1200, tinygrad/tinygrad#17659
    """
    if not _has_merges(tokenizer):
        raise EvidenceMissing(f"{tokenizer.file}: a vocabulary without merges")
    if cut_family is not None and cut_family.has_merges(tokenizer.merges.digest):
        return
    pieces, merges = _places(tokenizer.file)
    if tokenizer.merges.problem is not None:
        yield Finding(
            location=merges,
            message=f"{merges.name()}: no list of pairs of pieces: {tokenizer.merges.problem[:200]}",
            fix=COPY_FROM_ORIGINAL,
        )
        return
    order = PieceOrder(tokenizer=tokenizer, ordinary=ordinary_pieces(tokenizer))
    gaps = order.gaps()
    if gaps.unknown:
        yield _unknown(merges, gaps)
    bound = MAX_SHARE_UNMADE.get(tokenizer.kind, 1.0)
    if gaps.num_pieces >= MIN_JUDGED and gaps.num_unmade > bound * gaps.num_pieces:
        yield _unmade(merges, gaps, bound)
    disorder = order.disorder()
    if disorder is not None:
        yield _disorder((pieces, merges), disorder, "merges make")


def _has_merges(tokenizer: Tokenizer) -> bool:
    if tokenizer.file.endswith(".json"):
        return tokenizer.pipeline["model"].get("type") in ("BPE", None)
    return tokenizer.pipeline.get("model") in GGUF_WITH_MERGES


def _places(file: str) -> tuple[Location, Location]:
    """Of pieces and of merges."""
    if file.endswith(".json"):
        return Location(file=file, key="model.vocab"), Location(file=file, key="model.merges")
    return Location(file=file, key=f"{PREFIX}tokens"), Location(file=file, key=f"{PREFIX}merges")


def _unknown(place: Location, gaps: MergeGaps) -> Finding:
    at, piece = gaps.unknown[0]
    return Finding(
        location=place,
        message=f"{place.name()}: merge {at} takes or makes {piece!r}, which is no piece of the vocabulary"
        + (f"; so do {gaps.num_unknown - 1} more" if gaps.num_unknown > 1 else ""),
        measured={"merges_of_unknown_pieces": gaps.num_unknown, "first": at},
        bound={"merges_of_unknown_pieces": 0},
        fix=COPY_FROM_ORIGINAL,
        predicts="the tokenizer does not load, or text is split into other pieces",
    )


def _unmade(place: Location, gaps: MergeGaps, bound: float) -> Finding:
    shown = ", ".join(map(repr, gaps.unmade[:3]))
    return Finding(
        location=place,
        message=f"{place.name()}: {gaps.num_merges} merges make all but {gaps.num_unmade} of {gaps.num_pieces} pieces; no "
        f"merge makes {shown}: merges are missing",
        measured={"share_unmade": round(gaps.num_unmade / gaps.num_pieces, 4)},
        bound={"share_unmade": bound},
        fix=COPY_FROM_ORIGINAL,
        predicts="prompts of many short pieces",
    )


def _disorder(places: tuple[Location, ...], found: Disorder, what: str) -> Finding:
    file = places[0].file
    return Finding(
        location=places[0],
        places=places,
        message=f"{file}: {what} {found.piece!r} after {found.after!r}, and their ids are {found.found} and "
        f"{found.after_id}; {found.num_misplaced} of {found.num_pieces} pieces are out of order: rows were moved",
        confidence=Confidence.LIKELY,
        measured={"out_of_order": found.num_misplaced, "pieces": found.num_pieces},
        bound={"out_of_order": 0},
        fix=COPY_FROM_ORIGINAL,
    )


@check("TOK410", confidence=Confidence.LIKELY, symptom_of=EXPLAINED_BY)
def scores_out_of_order(tokenizer: Tokenizer, gguf: GgufFile | None = None) -> Iterator[Finding]:
    """A sentencepiece or Unigram vocabulary has scores where others have merges."""
    if tokenizer.kind not in ("byte-fallback", "metaspace"):
        raise EvidenceMissing(f"{tokenizer.file}: a vocabulary without scores")
    pieces, scores = scored_pieces(tokenizer, gguf)
    places: tuple[Location, ...] = (Location(file=tokenizer.file),)
    if gguf is not None:
        places = (Location(file=gguf.file, key=f"{PREFIX}tokens"), Location(file=gguf.file, key=f"{PREFIX}scores"))
    disorder = order_of_scores(pieces, scores)
    if disorder is not None:
        yield _disorder(places, disorder, "scores put")
        return
    if tokenizer.kind != "byte-fallback" or (gguf is not None and tokenizer.merges.stored):
        return
    share, missing = share_not_built(pieces)
    if len(pieces) >= MIN_JUDGED and share > MAX_SHARE_NOT_BUILT:
        yield Finding(
            location=places[0],
            places=places,
            message=f"{tokenizer.file}: {share:.0%} of the pieces, such as {', '.join(map(repr, missing[:3]))}, are made "
            "of no two pieces with lower ids: texts were moved under their scores",
            measured={"share_not_made_of_earlier_pieces": round(share, 4)},
            bound={"share_not_made_of_earlier_pieces": MAX_SHARE_NOT_BUILT},
            fix=COPY_FROM_ORIGINAL,
        )
