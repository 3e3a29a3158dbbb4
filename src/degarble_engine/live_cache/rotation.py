"""Keys that were rotated by another position than their own.

A rotation turns pairs of lanes (i, i + n/2) by position · frequency_i (RoPE, arXiv 2104.09864), so a key at position p turned
by d more is the key at p + d: no weight is needed to tell where a key believes it stands. Frequencies are taken from the
cosines and sines that the family's own code made, so that every kind of scaling is in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """One layer's rotation."""

    angles: Tensor
    """[pairs] radians per position."""
    first: int
    """The first lane that turns; halves follow one another from there."""

    @classmethod
    def of(cls, cos: Tensor, sin: Tensor, lanes: int, *, first: int) -> Rotary | None:
        """From what attention is given, [1, tokens, rotated lanes]; None if one token is all there is, or it does not fit."""
        if cos.ndim != 3 or cos.shape[1] < 2 or cos.shape[-1] % 2 or not 0 <= first <= lanes - cos.shape[-1]:
            return None
        pairs = cos.shape[-1] // 2
        return cls(angles=torch.atan2(sin[0, 1, :pairs], cos[0, 1, :pairs]).double(), first=first)

    @property
    def num_lanes(self) -> int:
        """Lanes that turn."""
        return 2 * len(self.angles)

    @property
    def lanes(self) -> slice:
        """Where they are."""
        return slice(self.first, self.first + self.num_lanes)

    def turned(self, key: Tensor, by: Tensor) -> Tensor:
        """Keys [tokens, heads, lanes] as if each stood `by` [tokens] positions further on."""
        angle = by.double()[:, None] * self.angles
        cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
        low, high = key[..., self.lanes].split(len(self.angles), dim=-1)
        found = key.clone()
        found[..., self.lanes] = torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
        return found

    def as_pairs(self, key: Tensor) -> Tensor:
        """The same key with the lanes of a pair side by side: how interleaved rotation stores it."""
        found = key.clone()
        low, high = key[..., self.lanes].split(len(self.angles), dim=-1)
        found[..., self.lanes] = torch.stack([low, high], dim=-1).flatten(-2)
        return found

    def wrongly_paired(self, key: Tensor, positions: Tensor) -> Tensor:
        """The key if lanes (2i, 2i + 1) had been turned together where (i, i + n/2) should be."""
        plain = self.turned(key, -positions)
        angle = positions.double()[:, None] * self.angles
        cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
        even, odd = plain[..., self.lanes].unflatten(-1, (-1, 2)).unbind(-1)
        plain[..., self.lanes] = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
        return plain
