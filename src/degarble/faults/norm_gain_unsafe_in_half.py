"""Plants NUM303."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule

PLAIN = {"GGUF:F32": "<f4", "GGUF:F16": "<f2"}


@fault("NUM303")
def norm_gain_unsafe_in_half(patient: Patient) -> Location:
    """Multiply one norm, in every layer, by a power of two that takes it beyond fp16's range."""
    return scale_norms(patient, 200_000.0)


def scale_norms(patient: Patient, peak: float) -> Location:
    """Bring the largest gain times the root of the width of one norm, in all its layers, to about `peak`.

    All layers alike: a single one would be damage that its peers give away.
    """
    module = patient.pick(patient.modules(lambda m: m.kind == "norm" and len(m.any_part.shape) == 1))
    peers = [m for m in patient.modules(lambda m: m.kind == "norm") if m.template == module.template]
    largest = max(float(np.abs(_stored(m).astype(np.float64)).max()) for m in peers) * module.any_part.shape[0] ** 0.5
    if largest <= 0 or largest > peak / 4:
        raise NotApplicable("norms of zeros, or large ones already")
    factor = 2.0 ** np.ceil(np.log2(peak / largest))
    for peer in peers:
        stored = _stored(peer)
        scaled = stored.astype(np.float64) * factor
        if stored.dtype == np.float16 and np.abs(scaled).max() > 65504:
            raise NotApplicable("norms stored in fp16 cannot be that large")
        overwrite(patient, peer.any_part, scaled.astype(stored.dtype))
    biggest = max(peers, key=lambda m: float(np.abs(_stored(m).astype(np.float64)).max()))
    return biggest.place()


def _stored(module: StoredModule) -> Array:
    info = module.any_part
    return module.reader.raw(info).view(PLAIN[info.dtype]) if info.dtype in PLAIN else module.reader.read(info)
