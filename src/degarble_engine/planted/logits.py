"""Faults behind the head."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from degarble_engine.planted.interface import Victim, alter_logits, live_fault, require

BLOWN_UP = 1e4
HEIGHT = 60.0


@live_fault(seen_by="non-finite-logits")
def logits_not_finite(victim: Victim) -> None:
    """One logit of every row is NaN, as after an overflow in fp16."""
    alter_logits(victim, lambda own: own.index_fill(1, torch.tensor([own.shape[1] // 2]), math.nan))


@live_fault(seen_by="entropy-drift")
def logits_flat(victim: Victim) -> None:
    """All logits are equal, as behind a head or a final norm of zeros."""
    alter_logits(victim, torch.zeros_like)


@live_fault(seen_by="entropy-drift")
def logits_blown_up(victim: Victim) -> None:
    """Logits are 10,000 times too large, as with a scale that was applied twice."""
    alter_logits(victim, lambda own: own * BLOWN_UP)


@live_fault(seen_by="control-tokens")
def control_token_wins(victim: Victim) -> None:
    """A special token that ends nothing gets the highest logit, as with ids of another vocabulary."""
    around = victim.surroundings
    found = sorted(around.special_ids - around.end_ids - around.end_like_ids)
    require(bool(found), "control-token-wins", "there is no such token")
    alter_logits(victim, lambda own: _raised(own, found[0]))


@live_fault(seen_by="ids-without-string")
def id_without_string_wins(victim: Victim) -> None:
    """A row of the embedding that no token has gets the highest logit."""
    showing, size = victim.surroundings.showing, victim.surroundings.vocab_size
    absent = [one for one in range(size) if showing is not None and showing.table.bytes_of(one) is None]
    require(bool(absent), "id-without-string-wins", "every id of the model has a string")
    alter_logits(victim, lambda own: _raised(own, absent[-1]))


@live_fault(seen_by="mojibake")
def half_character_wins(victim: Victim) -> None:
    """A token that is the first byte of a character gets the highest logit."""
    showing = victim.surroundings.showing
    pieces = showing.table.pieces if showing is not None else ()
    halves = [
        at for at, piece in enumerate(pieces) if piece is not None and len(piece) == 1 and 0xC2 <= piece[0] < 0xF5
    ]
    require(bool(halves), "half-character-wins", "no token is half a character")
    alter_logits(victim, lambda own: _raised(own, halves[0]))


@live_fault(seen_by="repetition-loop")
def loop_without_certainty(victim: Victim) -> None:
    """One token always wins by a little over a wide field, as with a zero point that is off by one."""
    showing, size = victim.surroundings.showing, victim.surroundings.vocab_size
    words = [at for at in range(size) if showing is not None and (showing.table.bytes_of(at) or b"").strip().isalpha()]
    long = [at for at in words if showing is not None and len((showing.table.bytes_of(at) or b"").strip()) > 1]
    require(bool(long), "loop-without-certainty", "no token is a word")
    rng = torch.Generator().manual_seed(victim.rng.randrange(1 << 30))

    def change(own: Tensor) -> Tensor:
        field = torch.full_like(own, -HEIGHT)
        width = min(size, 30 + int(torch.randint(0, 90, (1,), generator=rng)))
        field[:, :width] = 0.0
        field[:, long[0]] = 0.1
        return field

    alter_logits(victim, change)


def _raised(own: Tensor, token_id: int) -> Tensor:
    changed = own.clone()
    changed[:, token_id] = own.amax(-1) + 1.0
    return changed
