"""Text with look-alike characters brought together, and the way back: `<｜User｜>` and `<|User|>` fold to the same.

Web pages, editors and NFKC turn U+FF5C into `|`, U+2581 into `_`, and put invisible characters between. To a tokenizer
each of them is another text.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from degarble.tokenizer.look_alike import skeleton


class FoldedText(msgspec.Struct, frozen=True):
    """The folded text, and for each of its characters where it came from."""

    original: str
    text: str
    places: tuple[int, ...] | None
    """None where nothing was folded."""

    def slice(self, start: int, end: int) -> str:
        """What stands in the original for a stretch of the folded text, invisible characters inside included."""
        if self.places is None:
            return self.original[start:end]
        return self.original[self.places[start] : self.places[end - 1] + 1]


def fold(text: str) -> FoldedText:
    """Fold character by character."""
    if text.isascii():
        return FoldedText(text, text, None)
    characters: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for folded in _fold_character(character):
            characters.append(folded)
            places.append(place)
    return FoldedText(text, "".join(characters), tuple(places))


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    if character.isascii():
        return character
    return " " if character.isspace() else skeleton(character)
