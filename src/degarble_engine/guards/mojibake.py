"""Text that no reader can read: broken characters, tokens shown as stored, and characters that do not belong there."""

from __future__ import annotations

from degarble.tokenizer.mojibake import find_mojibake
from degarble.tokenizer.sanitize import TokenSanitizer
from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy
from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.interface import Action, Guard, Surroundings
from degarble_engine.guards.watched import Watched

EVERY = 16
"""Tokens from one look to the next."""
WINDOW_LOOKS = 4
MAX_TRACES = 3
MAX_DAMAGE = 8
HARMFUL = (Kind.CONTROL, Kind.NONCHARACTER, Kind.PRIVATE_USE, Kind.SURROGATE, Kind.BIDI, Kind.HIDDEN)
_POLICY = SanitizePolicy(nfc="keep", zero_width="keep")


class Mojibake(Guard):
    """Broken characters, stored spellings (`Ġ`, `<0xE4>`, U+2581), UTF-8 read as Latin-1, control and private-use characters.

    The answer is decoded exactly, from the bytes of its ids, so that nothing here comes from decoding tokens one by one: a
    broken character is one that the model wrote, half of it. Of 64 tokens, three such places are a suspicion (a model may
    quote them, and a sampled emoji may be cut), eight are damage.
    """

    name = "mojibake"
    default = Action.ANNOTATE
    bound = f"{EVERY * (WINDOW_LOOKS + 1)} tokens"
    reads_text = True

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._sanitizer = TokenSanitizer(_POLICY)

    @property
    def silence(self) -> str | None:
        """See Guard."""
        return None if self.surroundings.showing is not None else "there is no tokenizer"

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """See Guard."""
        return self._look(watched) if watched.num_outputs % EVERY == 0 else None

    def see_end(self, watched: Watched) -> Trip | None:
        """See Guard."""
        return self._look(watched) if watched.text else None

    def _look(self, watched: Watched) -> Trip | None:
        text, watched.text = watched.text, ""
        counts = watched.state.setdefault(self.name, [])
        assert isinstance(counts, list)
        counts.append(0 if text.isascii() and text.isprintable() else self._count(text))
        del counts[:-WINDOW_LOOKS]
        found = sum(counts)
        if found < MAX_TRACES:
            return None
        kind = TripKind.DAMAGE if found >= MAX_DAMAGE else TripKind.SUSPECT
        message = f"{found} broken or misplaced characters in the last {EVERY * len(counts)} tokens"
        return watched.trip(self.name, kind, message, places=(found, MAX_DAMAGE))

    def _count(self, text: str) -> int:
        changes = self._sanitizer.sanitize(text).counts
        broken = sum(
            trace.end - trace.start if trace.kind == "replacement-char" else 1 for trace in find_mojibake(text)
        )
        return broken + sum(changes.get(kind, 0) for kind in HARMFUL)
