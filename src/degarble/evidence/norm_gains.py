"""How large the output of a norm can become, from its weights alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import msgspec

from degarble.architectures.interface import Architecture
from degarble.evidence.modules import Modules
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile


class NormGain(msgspec.Struct, frozen=True):
    """One norm: |x| <= sqrt(width) before the gain, whatever the input."""

    module: StoredModule
    largest: float
    width: int

    @property
    def peak(self) -> float:
        """The largest output that any input can give."""
        return self.largest * math.sqrt(self.width)


def norm_gains(
    modules: Modules, profiles: Mapping[str, TensorProfile], architecture: Architecture | None
) -> Iterator[NormGain]:
    """Every norm of the text model whose values are finite."""
    shift = 1.0 if architecture is not None and architecture.norm_convention == "1+w" else 0.0
    for module in modules.values():
        payload = module.payload
        profile = profiles.get(payload.name) if payload is not None else None
        if module.kind != "norm" or profile is None or len(profile.shape) != 1 or profile.nonfinite:
            continue
        if profile.absmax is not None:
            yield NormGain(module, profile.absmax + shift, profile.count)


def log_gain(profile: TensorProfile, adds_one: bool) -> float | None:
    """Log rms of what a norm multiplies by; None where it has no logarithm."""
    if profile.rms is None or profile.mean is None or profile.nonfinite:
        return None
    square = profile.rms**2 + (2 * profile.mean + 1 if adds_one else 0)
    return math.log(square) / 2 if square > 0 and math.isfinite(square) else None
