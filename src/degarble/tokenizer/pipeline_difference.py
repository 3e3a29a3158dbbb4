"""What two stored pipelines do differently to the probe texts. How they are written is never compared.

`{"type": "Sequence", "normalizers": []}` is no normaliser, a Metaspace step may stand for a Prepend and a Replace, and
versions of a library write out more or fewer defaults.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from degarble.errors import EvidenceMissing
from degarble.tokenizer.bpe import Bpe
from degarble.tokenizer.bpe_encoder import bpe_of
from degarble.tokenizer.cuts import Cutter, cutter_of
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.stages import stages

IDLE = ("trim_offsets",)
"""Settings that no id depends on."""
MODEL_SETTINGS = ("byte_fallback", "ignore_merges", "unk_token", "fuse_unk", "dropout")


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """One part that does something else."""

    part: str
    """normalizer, pre_tokenizer, decoder, or a setting of the model."""
    text: str
    """The probe; '' for a setting."""
    found: str
    expected: str


def is_stored_alike(mine: Tokenizer, theirs: Tokenizer, part: str) -> bool:
    """Whether a part has the same steps with the same settings."""
    ours, others = (
        [
            (step.kind, {key: value for key, value in step.settings.items() if key not in IDLE})
            for step in stages(tokenizer.pipeline.get(part), part)
        ]
        for tokenizer in (mine, theirs)
    )
    return ours == others


def divergences(mine: Tokenizer, theirs: Tokenizer, texts: Iterable[str]) -> list[Divergence]:
    """Parts that differ. Raises EvidenceUnjudged if the library refuses one."""
    listed = list(texts)
    if mine.file.endswith(".json") and theirs.file.endswith(".json"):
        found = [_normalizer(mine, theirs, listed), _pre_tokenizer(mine, theirs, listed), _decoder(mine, theirs)]
        return [*(one for one in found if one is not None), *_settings(mine, theirs)]
    if mine.kind != "byte-level" or mine.kind != theirs.kind:
        return []
    try:
        bpe = bpe_of(mine)
        cuts = _cuts_differ(_cutter(mine), _cutter(theirs), listed, bpe)
    except EvidenceMissing:
        return []
    return [] if cuts is None else [cuts]


def _cutter(tokenizer: Tokenizer) -> Cutter:
    """Pre-tokenizers alone: llama.cpp does not normalise."""
    if tokenizer.file.endswith(".json"):
        return Cutter(None, tokenizer.pipeline.get("pre_tokenizer"), tokenizer.file)
    return cutter_of(tokenizer)


def _normalizer(mine: Tokenizer, theirs: Tokenizer, texts: list[str]) -> Divergence | None:
    if is_stored_alike(mine, theirs, "normalizer"):
        return None
    ours, others = (Cutter(one.pipeline.get("normalizer"), None, one.file) for one in (mine, theirs))
    for text in texts:
        found, expected = ours.normalize(text), others.normalize(text)
        if found != expected and _written(mine, text) != _written(theirs, text):
            return Divergence(part="normalizer", text=text, found=found, expected=expected)
    return None


def _written(tokenizer: Tokenizer, text: str) -> str:
    """After both steps: what one file leaves to the normaliser, another may leave to the pre-tokenizer."""
    return "".join(cutter_of(tokenizer).cuts(text))


def _pre_tokenizer(mine: Tokenizer, theirs: Tokenizer, texts: list[str]) -> Divergence | None:
    if is_stored_alike(mine, theirs, "pre_tokenizer"):
        return None
    if mine.kind == theirs.kind == "byte-level":
        return _cuts_differ(_cutter(mine), _cutter(theirs), texts)
    return _cuts_differ(cutter_of(mine), cutter_of(theirs), texts)


def _cuts_differ(ours: Cutter, others: Cutter, texts: list[str], bpe: Bpe | None = None) -> Divergence | None:
    """Converters choose a name that gives the same ids; with `bpe`, only cuts that change ids count."""
    for text in texts:
        found, expected = ours.cuts(text), others.cuts(text)
        if found != expected and (bpe is None or _ids(bpe, found) != _ids(bpe, expected)):
            at = next((n for n, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), 0)
            shown = (str(cuts[max(0, at - 1) : at + 3]) for cuts in (found, expected))
            return Divergence(part="pre_tokenizer", text=text, found=next(shown), expected=next(shown))
    return None


def _ids(bpe: Bpe, cuts: list[str]) -> list[int]:
    return [at for cut in cuts for at in bpe.encode(cut)]


def _decoder(mine: Tokenizer, theirs: Tokenizer) -> Divergence | None:
    """By the bytes of every id that both have."""
    if is_stored_alike(mine, theirs, "decoder"):
        return None
    ours, others = mine.table, theirs.table
    if ours.strip != others.strip:
        return Divergence(part="decoder", text="", found=f"strips {ours.strip}", expected=f"strips {others.strip}")
    for at, (one, other) in enumerate(zip(ours.pieces, others.pieces, strict=False)):
        if one != other and mine.pieces[at] == theirs.pieces[at]:
            return Divergence(part="decoder", text=str(mine.pieces[at]), found=repr(one), expected=repr(other))
    return None


def _settings(mine: Tokenizer, theirs: Tokenizer) -> list[Divergence]:
    ours, others = mine.pipeline["model"], theirs.pipeline["model"]
    return [
        Divergence(part=f"model.{key}", text="", found=repr(ours.get(key)), expected=repr(others.get(key)))
        for key in MODEL_SETTINGS
        if (ours.get(key) or None) != (others.get(key) or None)
    ]
