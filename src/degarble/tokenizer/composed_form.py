"""Unicode's composed form (NFC) of text that arrives in chunks.

A chunk may end inside a segment (see `normal_form_tables`), so the last one waits if anything could still change it: if
it has marks, or if its character combines with some mark. One character, mostly; 31 at most, after `mark_limit`.
"""

from __future__ import annotations

import unicodedata

import msgspec
import numpy as np
from numpy.typing import NDArray

from degarble.tokenizer.code_points import SHORT, CodePoints, Positions, code_points, text_of
from degarble.tokenizer.edits import Edits
from degarble.tokenizer.normal_form_tables import CHANGES, EXTENDS, MOVES, tables
from degarble.tokenizer.sanitize_policy import Kind
from degarble.tokenizer.text_stage import TextStage


class ComposedForm(TextStage):
    """Normalises to NFC (or rejects what is not)."""

    def _num_to_hold(self, text: str) -> int:
        table = tables()
        start = len(text) - 1
        while start > 0 and text[start] in table.extenders:
            start -= 1
        if start == len(text) - 1 and text[start] not in table.holders and text[start] not in table.extenders:
            return 0
        return len(text) - start

    def _work(self, text: str) -> str:
        if text.isascii() or (len(text) <= SHORT and unicodedata.is_normalized("NFC", text)):
            return text
        codes = code_points(text)
        traits = tables().traits.take(codes)
        unstable = traits >= CHANGES
        unstable[:-1] |= traits[1:] >= EXTENDS  # whole segments
        if not unstable.any():
            return text
        traits = traits[unstable]
        old = _Segments.of(codes[unstable], traits)
        composed = _composed(old.codes, traits)
        new = _Segments.of(composed, tables().traits.take(composed))
        changed = _differing(old, new)
        if not changed.any():
            return text
        if self._policy.nfc == "reject":
            self._reject(Kind.NFC, text, *_edits(old, new, changed, unstable).spans[:2, 0].tolist())
        num_changed = int(np.count_nonzero(changed))
        out = text_of(_spliced(codes, unstable, old, new))
        return self._changed(text, out, {Kind.NFC: num_changed}, lambda: _edits(old, new, changed, unstable))


class _Segments(msgspec.Struct, frozen=True):
    """Code points, and where in them segments begin."""

    codes: CodePoints
    starts: Positions
    sizes: Positions

    @classmethod
    def of(cls, codes: CodePoints, traits: NDArray[np.uint8]) -> _Segments:
        begins = traits < EXTENDS
        begins[0] = True  # a text may begin with marks
        bounds = np.concatenate((begins.nonzero()[0], (len(codes),)))
        return cls(codes, bounds[:-1], bounds[1:] - bounds[:-1])


def _composed(codes: CodePoints, traits: NDArray[np.uint8]) -> CodePoints:
    """NFC; `normalize` is slow at single characters of high planes, and these are moved before it sees them."""
    moving = (traits & MOVES).nonzero()[0]
    if moving.size:
        codes = codes.copy()
        codes[moving] = tables().moved[codes[moving]]
    return code_points(unicodedata.normalize("NFC", text_of(codes)))


def _differing(old: _Segments, new: _Segments) -> NDArray[np.bool_]:
    """For each segment, whether it is another one now."""
    changed: NDArray[np.bool_] = old.sizes != new.sizes
    same = np.repeat(~changed, old.sizes)
    other = old.codes[same] != new.codes[np.repeat(~changed, new.sizes)]
    changed[np.repeat(np.arange(len(changed)), old.sizes)[same][other]] = True
    return changed


def _edits(old: _Segments, new: _Segments, changed: NDArray[np.bool_], unstable: NDArray[np.bool_]) -> Edits:
    """An edit for each changed segment, without its first character where that stays."""
    starts, sizes, new_sizes = old.starts[changed], old.sizes[changed], new.sizes[changed]
    stays = (old.codes[starts] == new.codes[new.starts[changed]]) & (sizes > 1) & (new_sizes > 1)
    starts = unstable.nonzero()[0][starts] + stays
    return Edits.of_kind(Kind.NFC, starts, starts + sizes - stays, new_sizes - stays)


def _spliced(codes: CodePoints, unstable: NDArray[np.bool_], old: _Segments, new: _Segments) -> CodePoints:
    """The text with its unstable segments replaced by new ones."""
    stable = codes[~unstable]
    if not stable.size:
        return new.codes
    num_new = (~unstable).astype(np.int64)  # characters that come out of each: a segment's come out of its first
    num_new[unstable.nonzero()[0][old.starts]] = new.sizes
    is_new = np.repeat(unstable, num_new)
    out = np.empty(len(is_new), np.uint32)
    out[is_new], out[~is_new] = new.codes, stable
    return out
