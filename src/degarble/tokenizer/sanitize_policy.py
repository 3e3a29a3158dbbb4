"""What the sanitiser looks for, and what it does about each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

from degarble.errors import DegarbleError, UsageError

Action = Literal["keep", "normalise", "drop", "replace", "reject"]


class Kind(StrEnum):
    """One kind of text that does not belong into a prompt or an answer."""

    NFC = "nfc"
    """Text that is not in Unicode's composed form, and more than 30 combining marks on one character."""
    CONTROL = "control"
    """C0, DEL and C1 control characters, except those of `keep_controls`."""
    BIDI = "bidi"
    """Embeddings, overrides and isolates that show text in another order than it has. Marks (U+200E, U+200F) stay."""
    SURROGATE = "surrogate"
    """Halves of UTF-16 pairs: a whole pair becomes its character, a lone half cannot be encoded."""
    NONCHARACTER = "noncharacter"
    """U+FDD0 to U+FDEF and the last two of each plane."""
    PRIVATE_USE = "private-use"
    """Private-use characters beyond the first `max_private_use`."""
    ZERO_WIDTH = "zero-width"
    """All but the first of zero-width characters in a row. One alone joins emoji, or Persian and Indic letters."""
    HIDDEN = "hidden"
    """Tag characters outside a flag, and variation selectors in a row: ways to hide text in text."""
    SPECIAL_TOKEN = "special-token"
    """The text of a special token, typed by a user."""


KINDS = tuple(Kind)


class SanitizeRejected(DegarbleError):
    """Text that the policy refuses; `position` is in code points from its start."""

    def __init__(self, kind: str, position: int, found: str) -> None:
        super().__init__(f"position {position}: {kind}: {_shown(found)}")
        self.kind = kind
        self.position = position
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizePolicy:
    """One action for each kind. The default normalises and drops; `preset` gives the other three."""

    nfc: Action = "normalise"
    control: Action = "drop"
    bidi: Action = "drop"
    surrogate: Action = "drop"
    noncharacter: Action = "drop"
    private_use: Action = "drop"
    zero_width: Action = "drop"
    hidden: Action = "drop"
    special_token: Action = "keep"
    """`keep` reports it, so that the caller can encode it as text; it is never dropped, since what remains on both
    sides could then join into the same text again."""
    keep_controls: str = "\t\n\r"
    max_private_use: int = 2
    special_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in Kind:
            if self.action(kind) not in ALLOWED[kind]:
                raise UsageError(f"{kind}: {self.action(kind)!r} is none of {', '.join(ALLOWED[kind])}")
        if self.max_private_use < 0 or "" in self.special_tokens:
            raise UsageError("max_private_use must not be negative, and a special token must not be empty")

    def action(self, kind: Kind) -> Action:
        """What is done about a kind."""
        value: Action = getattr(self, kind.value.replace("-", "_"))
        return value

    @property
    def may_reject(self) -> bool:
        """Whether some kind is refused."""
        harmful = (self.control, self.bidi, self.surrogate, self.noncharacter, self.private_use)
        return "reject" in (*harmful, self.zero_width, self.hidden, self.nfc, self.special_token)

    @classmethod
    def preset(
        cls,
        name: str,
        *,
        keep_controls: str = "\t\n\r",
        max_private_use: int = 2,
        special_tokens: tuple[str, ...] = (),
    ) -> SanitizePolicy:
        """`normalise` (the default), `drop` (removes, rewrites nothing), `replace` (U+FFFD), `reject` (raises)."""
        if name not in PRESETS:
            raise UsageError(f"policy {name!r}: one of {', '.join(PRESETS)}")
        action = PRESETS[name]
        return cls(
            nfc="keep" if name == "drop" else "reject" if name == "reject" else "normalise",
            control=action,
            bidi=action,
            surrogate=action,
            noncharacter=action,
            private_use=action,
            zero_width=action,
            hidden=action,
            special_token="keep" if action == "drop" else action,
            keep_controls=keep_controls,
            max_private_use=max_private_use,
            special_tokens=special_tokens,
        )


_HARMFUL = (
    Kind.CONTROL,
    Kind.BIDI,
    Kind.SURROGATE,
    Kind.NONCHARACTER,
    Kind.PRIVATE_USE,
    Kind.ZERO_WIDTH,
    Kind.HIDDEN,
)
PRESETS: Mapping[str, Action] = {"normalise": "drop", "drop": "drop", "replace": "replace", "reject": "reject"}
ALLOWED: Mapping[Kind, tuple[str, ...]] = {
    **{kind: tuple(action for action in get_args(Action) if action != "normalise") for kind in _HARMFUL},
    Kind.SURROGATE: ("drop", "replace", "reject"),
    Kind.NFC: ("keep", "normalise", "reject"),
    Kind.SPECIAL_TOKEN: ("keep", "replace", "reject"),
}
"""A lone surrogate may not stay: nothing can encode it."""


def _shown(text: str) -> str:
    shown = " ".join(f"U+{ord(char):04X}" for char in text[:8])
    return f"{shown} …" if len(text) > 8 else shown
