"""Statistics of scales, norms and sizes: WGT205, WGT212 to WGT220, WGT223, WGT224, WGT226, WGT229, NUM301, NUM303."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scripts.calibration.statistic import CLOSE, Value, above, below, class_of

from degarble.checks.numerics.norm_gain_unsafe_in_half import LARGEST_HALF
from degarble.checks.numerics.trained_bf16_served_fp16 import NARROW
from degarble.checks.weights import embedding_rows_dead as embedding
from degarble.checks.weights import exponent_bytes_as_values as exponents
from degarble.checks.weights import fused_scales_disagree as fused
from degarble.checks.weights import global_scale_reciprocal as reciprocal
from degarble.checks.weights import group_underflows_in_half as underflow
from degarble.checks.weights import key_bias_outlier as bias
from degarble.checks.weights import kv_scale_invalid as cache_scale
from degarble.checks.weights import magnitude_implausible as magnitude
from degarble.checks.weights import norm_weights_implausible as norm
from degarble.checks.weights import power_of_two_scale_mismatch as rounded
from degarble.checks.weights import router_bias_collapsed as router
from degarble.checks.weights import rows_dead as dead
from degarble.checks.weights import scale_outlier as outlier
from degarble.evidence import Evidence
from degarble.evidence.layer_series import MIN_LAYERS, deviations, layer_series
from degarble.evidence.magnitudes import Magnitude, block_residual, row_excess
from degarble.evidence.norm_gains import norm_gains
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import ScaleStats
from degarble.profile.repeated_rows import repeated_rows
from degarble.profile.sample import UNREADABLE

MANY_LAYERS = 10


@above("WGT205", "dead outputs of a module (warning from 1)", float(dead.MANY_ROWS - 1))
def dead_outputs(evidence: Evidence) -> Iterator[Value]:
    """Not yet counted off against the other layers, so looser than the rule."""
    for name, found in (evidence.find("dead_outputs") or {}).items():
        yield Value(class_of(evidence.get("modules")[name], with_format=True), float(found.count), name)


def _implied(evidence: Evidence) -> Iterator[Value]:
    profiles = evidence.get("profiles")
    for module in evidence.get("modules").values():
        if module.form.format in reciprocal.DIVIDES and (value := reciprocal._value(module, profiles)):
            found = reciprocal.implied_amax(value, reciprocal.DIVIDES[module.form.format])
            yield Value(module.form.format, found, module.name)


@above("WGT212", "largest weight that the global scale allows for", reciprocal.AMAX_MAX)
def largest_implied(evidence: Evidence) -> Iterator[Value]:
    """NVFP4."""
    yield from _implied(evidence)


@below("WGT212", "the same, log10", math.log10(reciprocal.AMAX_MIN))
def smallest_implied(evidence: Evidence) -> Iterator[Value]:
    """NVFP4."""
    yield from (Value(one.kind, math.log10(one.number), one.place) for one in _implied(evidence))


@above("WGT213", "ratio of the scales of modules that engines join (FP8: information only)", fused.WARNING_RATIO)
def joined_scales(evidence: Evidence) -> Iterator[Value]:
    """q/k/v and gate/up."""
    for group in evidence.find("fused_groups") or ():
        found = [value for m in group if (value := fused._scale(m, evidence.get("profiles"))) is not None]
        if len(found) > 1:
            yield Value(class_of(group[0], with_format=True), max(found) / min(found), group[0].name)


@above("WGT214", "share of blocks at the largest code, where all scales are powers of two", rounded.MAX_SHARE)
def reach(evidence: Evidence) -> Iterator[Value]:
    """FP8 and FP4."""
    for name, profile in evidence.get("module_profiles").items():
        scales = profile.scales
        if profile.reach is None or scales is None or scales.power_of_two < 1.0:
            continue
        module = evidence.get("modules")[name]
        if scales.shape[0] * scales.shape[1] >= rounded.MIN_SCALES and not rounded._is_even(module):
            yield Value(module.form.format, profile.reach, name)


@above("WGT215", "largest scale of 16 or 32 bits", float(exponents.LOWEST))
def wide_scales(evidence: Evidence) -> Iterator[Value]:
    """Whole numbers above it are taken for exponents."""
    profiles = evidence.get("profiles")
    for module in evidence.get("modules").values():
        part = module.part("scale")
        if part is not None and part.dtype in exponents.WIDE and (profile := profiles.get(part.name)):
            yield Value(class_of(module, with_format=True), profile.absmax or 0.0, module.name)


def _magnitudes(evidence: Evidence) -> Iterator[tuple[str, Magnitude]]:
    found = evidence.find("magnitudes") or ()
    layers = len({one.module.layer for one in found})
    kind = f"from {MANY_LAYERS} layers on" if layers >= MANY_LAYERS else f"{MIN_LAYERS} to {MANY_LAYERS - 1} layers"
    return ((kind, one) for one in found)


@above("WGT216, WGT229", "|log ratio of rms to the median of other layers|, nats", outlier.MAX_NATS)
def unlike_peers(evidence: Evidence) -> Iterator[Value]:
    """Six robust deviations are asked for as well."""
    yield from (
        Value(kind, abs(one.deviation), one.module.name) for kind, one in _magnitudes(evidence) if one.module.layer
    )


@above("WGT216, WGT229", "the same in the first layer", outlier.FIRST_LAYER_NATS)
def first_layer_unlike_peers(evidence: Evidence) -> Iterator[Value]:
    """What reads the embedding may have any size."""
    yield from (
        Value(kind, abs(one.deviation), one.module.name) for kind, one in _magnitudes(evidence) if not one.module.layer
    )


@above("WGT216, WGT229", "both conditions: the smaller of nats / bound and deviations / 6", 1.0)
def unlike_peers_combined(evidence: Evidence) -> Iterator[Value]:
    """Both must be met."""
    for kind, one in _magnitudes(evidence):
        yield Value(kind, min(abs(one.deviation) / outlier.max_nats(one), one.z / outlier.MIN_Z), one.module.name)


def _with_scales(evidence: Evidence) -> Iterator[tuple[StoredModule, ScaleStats, int]]:
    modules = evidence.get("modules")
    for name, profile in evidence.get("module_profiles").items():
        if profile.scales is not None and name in modules and modules[name].kind in ("linear", "router", "head"):
            yield modules[name], profile.scales, profile.num_outputs


def _block(module: StoredModule, scales: ScaleStats, bound: float) -> float:
    found = scales.residual
    if scales.residual_at is not None and found > CLOSE * bound:
        try:
            found = min(found, abs(block_residual(module, *scales.residual_at)))
        except UNREADABLE:
            return 0.0
    return found


@above("WGT216", "one block: octaves left in its scale and in its weights", outlier.MAX_OCTAVES)
def blocks(evidence: Evidence) -> Iterator[Value]:
    """All but grids of FP8 blocks."""
    for module, scales, _ in _with_scales(evidence):
        if outlier._block_bound(module) == outlier.MAX_OCTAVES:
            yield Value(class_of(module, with_format=True), _block(module, scales, outlier.MAX_OCTAVES), module.name)


@above("WGT216", "one block of an FP8 grid: the same", outlier.MAX_GRID_OCTAVES)
def grid_blocks(evidence: Evidence) -> Iterator[Value]:
    """Grids of 64 rows and more."""
    for module, scales, _ in _with_scales(evidence):
        if outlier._block_bound(module) == outlier.MAX_GRID_OCTAVES:
            number = _block(module, scales, outlier.MAX_GRID_OCTAVES)
            yield Value(class_of(module, with_format=True), number, module.name)


@above("WGT216", "one row: octaves above the median row in its scales and in its weights", outlier.MAX_ROW_OCTAVES)
def single_rows(evidence: Evidence) -> Iterator[Value]:
    """Formats with scales for each row."""
    for module, scales, outputs in _with_scales(evidence):
        if scales.row_at is None or scales.shape[0] != outputs:
            continue
        found = scales.row_ratio
        if found > CLOSE * outlier.MAX_ROW_OCTAVES:
            try:
                found = min(found, row_excess(module, scales.row_at, evidence.get("modules")))
            except UNREADABLE:
                continue
        yield Value(class_of(module, with_format=True), found, module.name)


@above("WGT217", "share of negative values, norms that multiply by w", norm.NEGATIVE_SHARE)
def negatives(evidence: Evidence) -> Iterator[Value]:
    """Norms of the text model."""
    profiles = evidence.get("profiles")
    for module in evidence.get("modules").values():
        profile = profiles.get(module.payload.name) if module.kind == "norm" and module.payload else None
        if profile is not None and profile.counts is not None and profile.count >= norm.MIN_COUNT:
            yield Value("norms", profile.counts.negatives / profile.count, module.name)


@above("WGT217", "|log gain| against other layers and both neighbours, layer 0 left out, nats", norm.NATS)
def norm_jumps(evidence: Evidence) -> Iterator[Value]:
    """The smallest of the three distances."""
    profiles = evidence.get("profiles")
    for one in layer_series(
        evidence.get("modules"), lambda m: m.kind == "norm" and m.name.rpartition(".")[2] not in norm.HEAD_NORMS
    ):
        sizes = norm._log_gains(one, profiles, False, frozenset())
        if len(sizes) < MIN_LAYERS:
            continue
        layers = sorted(sizes)
        for layer, distance in deviations(sizes).items():
            at = layers.index(layer)
            near = [sizes[layers[other]] for other in (at - 1, at + 1) if 0 <= other < len(layers)]
            if layer:
                number = min(abs(distance), *((sizes[layer] - size) * math.copysign(1, distance) for size in near))
                yield Value("norms", max(number, 0.0), one.by_layer[layer].name)


@above("WGT218", "norm of a k_proj bias over the median layer's", bias.RATIO)
def key_biases(evidence: Evidence) -> Iterator[Value]:
    """Only models with such a bias."""
    profiles = evidence.get("profiles")
    for one in layer_series(evidence.get("modules"), lambda m: "bias" in m.form.roles):
        if one.template.endswith("k_proj"):
            sizes = {m.name: size for m in one.by_layer.values() if (size := bias._norm(m, profiles)) is not None}
            middle = float(np.median(list(sizes.values()))) if sizes else 0.0
            yield from (Value("k_proj", size / max(middle, 1e-30), name) for name, size in sizes.items())


@below("WGT219", "distinct values of a router's correction bias over its experts", router.SHARE)
def router_biases(evidence: Evidence) -> Iterator[Value]:
    """From 16 experts on."""
    for module in evidence.get("modules").values():
        found = router._bias(module)
        if found is not None and found.size >= router.MIN_EXPERTS and found.any():
            yield Value("routers", len(np.unique(found)) / found.size, module.name)


@above("WGT220", "copies of a layer, expert or module", 0.0)
def copies(evidence: Evidence) -> Iterator[Value]:
    """One number a file."""
    found = evidence.find("twins")
    if found is not None:
        number = len(found.layers) + len(found.experts) + len(found.modules) + len(found.slices)
        yield Value("a file", float(number), "the file")


@below("WGT223", "log2 of the smallest scale above zero, integer weights in bf16 or fp32", math.log2(underflow.TO_ZERO))
def smallest_scale(evidence: Evidence) -> Iterator[Value]:
    """Scales of groups."""
    profiles = evidence.get("profiles")
    for module, _, _ in _with_scales(evidence):
        info, scheme = module.part("scale"), module.form.scheme
        profile = profiles.get(info.name) if info is not None and info.dtype in underflow.WIDE else None
        if scheme is not None and scheme.type == "int" and profile is not None and profile.counts is not None:
            low = profile.counts.min_positive
            if low:
                yield Value(class_of(module), math.log2(low), module.name)


@above("WGT224", "largest scale of the KV cache", cache_scale.LARGEST)
def cache_scales(evidence: Evidence) -> Iterator[Value]:
    """Keys and values."""
    profiles = evidence.get("profiles")
    for name in evidence.find("kv_scales") or ():
        if (profile := profiles.get(name)) and profile.absmax is not None:
            yield Value("scales", profile.absmax, name)


@above("WGT226", "repeated rows of the embedding, specials included", float(embedding.MAX_REPEATED))
def repeated_tokens(evidence: Evidence) -> Iterator[Value]:
    """The bound is 0.1 % of the vocabulary where that is more, and counts ordinary tokens only."""
    for module in evidence.get("modules").values():
        if module.kind == "embedding" and module.payload is not None:
            found = repeated_rows(module.reader.raw(module.payload), module.payload.shape[0])
            yield Value(f"{module.payload.shape[0]} rows", float(sum(len(one) - 1 for one in found)), module.name)


@above("WGT229", "rms of a linear", magnitude.HUGE_RMS)
def linear_rms(evidence: Evidence) -> Iterator[Value]:
    """By itself."""
    modules = evidence.get("modules")
    for name, profile in evidence.get("module_profiles").items():
        if name in modules and modules[name].kind == "linear":
            yield Value("linears", profile.values.rms, name)


def _peaks(evidence: Evidence) -> Iterator[Value]:
    for gain in norm_gains(evidence.get("modules"), evidence.get("profiles"), evidence.find("architecture")):
        yield Value("norms", gain.peak, gain.module.name)


@above("NUM301", "|gain| times the root of the width", LARGEST_HALF / NARROW)
def margins(evidence: Evidence) -> Iterator[Value]:
    """Asked only where fp16 serves a model trained in bf16."""
    yield from _peaks(evidence)


@above("NUM303", "the same", LARGEST_HALF)
def peaks(evidence: Evidence) -> Iterator[Value]:
    """Every norm."""
    yield from _peaks(evidence)
