"""What happened in one lane: the largest numbers by place, the first number beyond the range, and who is lost by it.

A number that is not finite is noted and then replaced by 0, so that it spoils nobody else: whether a token overflows by
itself can only be seen while its neighbours are finite. The token counts as lost from there on, and with it, behind the
layer, every later token of its sequence, which reads it. So one long sequence answers for all its beginnings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

NOT_FINITE, ZEROS, CLAMPED = "not finite", "zeros", "clamped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The largest magnitude at one place, and the token it belongs to."""

    value: float
    sequence: int
    token: int


@dataclass(slots=True, kw_only=True)
class Event:
    """Numbers of some tokens left the range at one place, the first time for each of them."""

    layer: int
    module: str
    place: str
    kind: str
    sequence: int
    token: int
    """The first of them."""
    num_tokens: int
    value: float
    """Largest magnitude before rounding; not finite where the sum itself was."""


@dataclass(slots=True)
class Ledger:
    """Of one lane over one batch."""

    valid: Tensor  # [batch, tokens] bool
    keeps_peaks: bool = True
    layer: int = -1
    """-1: the embedding."""
    lost: Tensor = field(init=False)  # [batch, tokens] bool
    harmed: Tensor = field(init=False)  # [batch, tokens] bool: finite, but zeros or clamped
    peaks: dict[tuple[int, str, str], Peak] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    _unplaced: tuple[str, str, float] | None = None
    """Module, place and value of an event whose tokens the shape did not tell."""

    def __post_init__(self) -> None:
        self.lost = torch.zeros_like(self.valid)
        self.harmed = torch.zeros_like(self.valid)

    def by_token(self, values: Tensor) -> Tensor | None:
        """Largest magnitude of every token, [batch, tokens]; None where the shape does not tell tokens."""
        batch, tokens = self.valid.shape
        size = values.abs()
        if values.ndim == 4 and values.shape[0] == batch and values.shape[2] == tokens:
            return size.amax((1, 3))
        if values.ndim >= 2 and values.shape[:2] == (batch, tokens):
            return size.flatten(2).amax(2) if values.ndim > 2 else size
        if values.ndim >= 2 and values.shape[0] == batch * tokens:
            return size.flatten(1).amax(1).view(batch, tokens)
        return None

    def peak(self, values: Tensor, module: str, place: str) -> None:
        """Note how large numbers are there."""
        if not self.keeps_peaks:
            return
        found = self.by_token(values)
        if found is not None:
            self.peak_of_tokens(found, module, place)

    def peak_of_tokens(self, sizes: Tensor, module: str, place: str) -> None:
        """The same, for a magnitude of every token."""
        if not self.keeps_peaks:
            return
        counted = torch.where(self.valid & torch.isfinite(sizes), sizes, torch.zeros_like(sizes))
        value, at = counted.flatten().max(0)
        key = self.layer, module, place
        known = self.peaks.get(key)
        if known is None or float(value) > known.value:
            sequence, token = divmod(int(at), self.valid.shape[1])
            self.peaks[key] = Peak(value=float(value), sequence=sequence, token=token)

    def finite(self, values: Tensor, before: Tensor, module: str, place: str) -> Tensor:
        """`values`, rounded from `before`, with those that are not finite noted and replaced by 0."""
        if bool(torch.isfinite(values.sum())) or bool(
            torch.isfinite(values).all()
        ):  # the sum is fast, and may overflow
            return values
        bad = ~torch.isfinite(values)
        tokens = self.by_token(bad.float())
        large = torch.where(bad, before.abs(), torch.zeros_like(before))
        sizes = self.by_token(large)
        if tokens is None or sizes is None:
            if self._unplaced is None:
                self._unplaced = module, place, float(large.max())
            return values
        if self._unplaced is not None:
            module, place, value = self._unplaced
            sizes = torch.where(tokens > 0, torch.full_like(sizes, value), sizes)
            self._unplaced = None
        self.note(tokens > 0, sizes, module, place, NOT_FINITE)
        return values.masked_fill(bad, 0.0)

    def note(self, tokens: Tensor, sizes: Tensor, module: str, place: str, kind: str) -> None:
        """An event for those tokens to which nothing happened yet."""
        fresh = tokens & self.valid & ~self.lost
        if kind != NOT_FINITE:
            fresh = fresh & ~self.harmed
        if not bool(fresh.any()):
            return
        order = fresh.nonzero()
        first = order[order[:, 1].argmin()]
        self.events.append(
            Event(
                layer=self.layer, module=module, place=place, kind=kind, sequence=int(first[0]), token=int(first[1]),
                num_tokens=int(fresh.sum()), value=float(torch.where(fresh, sizes, torch.zeros_like(sizes)).max()),
            )
        )  # fmt: skip
        if kind == NOT_FINITE:
            self.lost |= fresh
        else:
            self.harmed |= fresh

    def close_layer(self) -> None:
        """Later tokens of a sequence have read the lost ones."""
        self.lost |= (self.lost.cumsum(1) > 0) & self.valid
        self._unplaced = None

    @property
    def safe_tokens(self) -> int | None:
        """Tokens that every sequence may have before the first that is lost or harmed; None: all of them."""
        hit = (self.lost | self.harmed) & self.valid
        return int(hit.any(0).nonzero()[0]) if bool(hit.any()) else None

    @property
    def lost_share(self) -> float:
        """Share of the tokens whose output is not finite."""
        return float((self.lost & self.valid).sum()) / max(1, int(self.valid.sum()))

    @property
    def harmed_share(self) -> float:
        """Share of the tokens that are finite and wrong: zeros, or held at the end of the range."""
        return float((self.harmed & ~self.lost & self.valid).sum()) / max(1, int(self.valid.sum()))
