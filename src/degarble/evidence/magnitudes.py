"""Evidence about sizes: how far a module's weights lie from those of the same module in other layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from degarble.architectures.interface import Architecture
from degarble.checkpoint.tensor_data import Array
from degarble.errors import EvidenceMissing
from degarble.evidence.layer_series import MIN_LAYERS, deviations, layer_series
from degarble.evidence.modules import Modules
from degarble.evidence.norm_gains import log_gain
from degarble.evidence.partners import of_same_row, undoing
from degarble.evidence.store import provides
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import GROUP_INDEX, group_size, num_outputs
from degarble.profile.layer import rows
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.sample import spread
from degarble.profile.tensor_profile import TensorProfile

FLOOR = 0.15
"""Smallest spread that is believed, in nats: some modules are equal to 4 % in all layers."""
NORMAL = 1.4826
"""Median absolute deviation -> standard deviation."""
COMPARED_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Magnitude:
    """One module against its peers."""

    module: StoredModule
    rms: float
    deviation: float
    """log(rms) less the median of the other layers, in nats; less of it where the other half of a fold explains it."""
    z: float
    scale_deviation: float | None
    """The same of the median scale; None without scales."""


@provides("magnitudes")
def magnitudes(
    modules: Modules,
    module_profiles: Mapping[str, ModuleProfile],
    profiles: Mapping[str, TensorProfile],
    architecture: Architecture | None = None,
) -> Sequence[Magnitude]:
    """Every linear that at least four layers have."""
    mtp = set(architecture.mtp_layers) if architecture is not None else set()
    series: dict[str, dict[int, list[StoredModule]]] = {}
    for module in modules.values():
        profile = module_profiles.get(module.name)
        if module.kind != "linear" or module.layer is None or module.layer in mtp or module.canonical is None:
            continue
        if profile is not None and 0 < profile.values.rms < math.inf:
            series.setdefault(module.template, {}).setdefault(module.layer, []).append(module)
    enough = [by_layer for by_layer in series.values() if len(by_layer) >= MIN_LAYERS]
    if not enough:
        raise EvidenceMissing(f"fewer than {MIN_LAYERS} layers with the same linear: no peers to compare with")
    found = [one for by_layer in enough for one in _judged(by_layer, module_profiles)]
    known = {one.module.name: one.deviation for one in found} | _of_norms(modules, profiles, architecture)
    return [_unfolded(one, modules, known) for one in found]


def _of_norms(
    modules: Modules, profiles: Mapping[str, TensorProfile], architecture: Architecture | None
) -> dict[str, float]:
    """Norm -> log gain less the median of the same norm in the other layers."""
    adds_one = architecture is not None and architecture.norm_convention == "1+w"
    found: dict[str, float] = {}
    for one in layer_series(modules, lambda module: module.kind == "norm"):
        gains = {
            layer: gain
            for layer, norm in one.by_layer.items()
            if (profile := profiles.get(norm.any_part.name)) and (gain := log_gain(profile, adds_one)) is not None
        }
        if len(gains) >= MIN_LAYERS:
            found |= {one.by_layer[layer].name: away for layer, away in deviations(gains).items()}
    return found


def _unfolded(one: Magnitude, modules: Modules, known: Mapping[str, float]) -> Magnitude:
    """What is left where a fold made the module larger and its other half smaller by as much."""
    halves = (known[other.name] for other in undoing(one.module, modules) if other.name in known)
    left = min((one.deviation, *(one.deviation + half for half in halves)), key=abs)
    if left == one.deviation:
        return one
    return replace(one, deviation=left, z=one.z * abs(left / one.deviation))


def _judged(by_layer: Mapping[int, list[StoredModule]], profiles: Mapping[str, ModuleProfile]) -> Iterator[Magnitude]:
    """Experts are held against the other experts of their layer too, and the smaller deviation counts."""
    sizes = _by_layer(by_layer, lambda profile: math.log(profile.values.rms))
    scales = _by_layer(by_layer, _log_scale)
    for members in by_layer.values():
        for module in members:
            value = math.log(profiles[module.name].values.rms)
            deviation, spread_of = _away(value, sizes(module, profiles))
            own = _log_scale(profiles[module.name])
            scale_peers = scales(module, profiles)
            yield Magnitude(
                module=module,
                rms=profiles[module.name].values.rms,
                deviation=deviation,
                z=abs(deviation) / spread_of,
                scale_deviation=None if math.isnan(own) else _away(own, scale_peers)[0],
            )


Peers = Callable[[StoredModule, Mapping[str, ModuleProfile]], list[list[float]]]


def _by_layer(by_layer: Mapping[int, list[StoredModule]], value_of: Callable[[ModuleProfile], float]) -> Peers:
    """A function that gives the values a module is held against: of the other layers, and of its layer's experts."""
    medians: dict[int, float] = {}

    def peers(module: StoredModule, profiles: Mapping[str, ModuleProfile]) -> list[list[float]]:
        if not medians:
            for layer, members in by_layer.items():
                medians[layer] = _median([value_of(profiles[one.name]) for one in members])
        others = [value for layer, value in medians.items() if layer != module.layer and not math.isnan(value)]
        experts = by_layer[module.layer if module.layer is not None else 0]
        if len(experts) < MIN_LAYERS:
            return [others]
        return [others, [value_of(profiles[one.name]) for one in experts if one is not module]]

    return peers


def _log_scale(profile: ModuleProfile) -> float:
    """Natural logarithm of the median scale; NaN without one."""
    octaves = profile.scales.log2_median if profile.scales is not None else None
    return math.nan if octaves is None else octaves * math.log(2)


def _away(value: float, peers: Sequence[Sequence[float]]) -> tuple[float, float]:
    """(distance from the median, robust deviation) for the peers to which the value is nearest."""
    found = []
    for values in peers:
        if not values or any(math.isnan(one) for one in values):
            continue
        middle = median(values)
        spread_of = NORMAL * median([abs(one - middle) for one in values])
        found.append((value - middle, max(spread_of, FLOOR)))
    return min(found, key=lambda one: abs(one[0]), default=(0.0, FLOOR))


def _median(values: Sequence[float]) -> float:
    """NaN if one of them is."""
    return math.nan if any(map(math.isnan, values)) else median(values)


def block_residual(module: StoredModule, row: int, group: int) -> float:
    """How far the median |w| of one block lies from what its row and its column suggest, in octaves.

    Judged against 32 other rows of blocks. Raises ValueError where the module cannot be cut.
    """
    scheme = module.form.scheme
    height = scheme.block_shape[0] if scheme is not None and scheme.block_shape else 1
    total, size = num_outputs(module), group_size(module)
    count = -(-total // height)
    chosen = sorted({row, *(start for start, _ in spread(count, COMPARED_ROWS, 1))})
    runs = [(at * height, min(at * height + min(height, 8), total)) for at in chosen]
    values = np.abs(rows(module, runs))
    index = module.group_index() if module.part(GROUP_INDEX) is not None else None
    if index is not None:
        values = values[:, np.argsort(index, kind="stable")]
    whole = shape_of(module)[-1] // size * size
    medians = np.array(
        [np.median(part[:, :whole].reshape(len(part), -1, size), axis=(0, 2)) for part in _split(values, runs)]
    )
    logs = np.log2(np.where(medians > 0, medians, np.nan))
    rest = logs - np.nanmedian(logs, axis=1, keepdims=True)
    rest -= np.nanmedian(rest, axis=0)
    found = float(rest[chosen.index(row), group]) if group < rest.shape[1] else 0.0
    return 0.0 if math.isnan(found) else found


def _split(values: Array, runs: Sequence[tuple[int, int]]) -> Iterator[Array]:
    at = 0
    for start, stop in runs:
        yield values[at : at + stop - start]
        at += stop - start


def row_excess(module: StoredModule, row: int, modules: Modules) -> float:
    """How far one output is above the median of 32 others in rms and in median |w|, in octaves: the smaller of the two.

    Less what the same neuron, or hidden channel, shows in its partners: a few of them are large in healthy models.
    Raises ValueError where the module cannot be cut.
    """
    own = _row_excess(module, row)
    others = [_row_excess(other, row) for other in of_same_row(module, modules) if num_outputs(other) > row]
    return own - max((*others, 0.0))


def _row_excess(module: StoredModule, row: int) -> float:
    total = num_outputs(module)
    chosen = sorted({row, *(start for start, _ in spread(total, COMPARED_ROWS, 1))})
    values = rows(module, [(at, at + 1) for at in chosen])
    sizes = np.sqrt(np.einsum("nd,nd->n", values, values) / values.shape[1])
    medians = np.median(np.abs(values), axis=1)
    at = chosen.index(row)
    excess = [
        math.log2(one[at] / middle) for one in (sizes, medians) if (middle := float(np.median(one))) > 0 and one[at] > 0
    ]
    return min(excess, default=0.0)
