"""Statistics of modules in pairs and of block scales: WGT209, WGT221, WGT222, WGT225."""

from __future__ import annotations

import math
from collections.abc import Iterator

from scripts.calibration.statistic import Value, above, below

from degarble.checks.weights import module_exchanged as exchanged
from degarble.checks.weights import row_pairs_interleaved as rows
from degarble.checks.weights import scales_swizzled as swizzled
from degarble.evidence import Evidence
from degarble.evidence.pack_orders import MIN_DEVIATIONS, MIN_RATIO, RELATED, bests
from degarble.profile.joint import deviations
from degarble.profile.layer import JointProfile
from degarble.profile.sample import UNREADABLE

EVERY = 3
"""Layers between two second looks that no suspicion asked for."""


def profiles(evidence: Evidence) -> list[JointProfile]:
    """Every attention and MLP that was looked at."""
    return list(evidence.find("joint") or ())


@above("WGT209", "deviations by which the best other order beats the stored one", MIN_DEVIATIONS)
def other_orders(evidence: Evidence) -> Iterator[Value]:
    """Of every pair; rotary partners left out."""
    for profile in profiles(evidence):
        for pair in profile.pairs:
            best = max(bests(profile, pair).values(), default=math.nan)
            yield Value(_pair(profile, pair.left), deviations(best, pair.stored, pair.count), pair.left)


@above("WGT209", "all conditions, where T reaches 2: the smaller of deviations / 8 and (ratio - 1) / 0.25", 1.0)
def other_orders_combined(evidence: Evidence) -> Iterator[Value]:
    """Both must be met."""
    for profile in profiles(evidence):
        for pair in profile.pairs:
            best = max(bests(profile, pair).values(), default=math.nan)
            if best <= RELATED:
                continue
            number = min(
                deviations(best, pair.stored, pair.count) / MIN_DEVIATIONS,
                (best / max(pair.stored, 1e-9) - 1) / (MIN_RATIO - 1),
            )
            yield Value(_pair(profile, pair.left), number, pair.left)


def _pair(profile: JointProfile, left: str) -> str:
    part = next((part for part, name in profile.modules.items() if name == left), "?")
    return {"q": "q and k", "v": "v and o", "up": "up and down", "gate": "gate and down"}.get(part, part)


def _whole(evidence: Evidence) -> Iterator[JointProfile]:
    """Second looks of every third layer, and of those that the first finds low."""
    look = evidence.get("block_look")
    for one in profiles(evidence):
        signs = [sign for sign in (one.key_value, one.gate_up) if sign is not None]
        is_asked = one.layer % EVERY == 0 or min(signs, default=0.0) < exchanged.SUSPICIOUS
        if is_asked and (whole := look.whole(one)) is not None:
            yield whole


@below("WGT221", "k and v: log[T(q,k) T(v,o) / (T(q,v) T(k,o))]", exchanged.MAX_KEY_VALUE)
def key_value(evidence: Evidence) -> Iterator[Value]:
    """Over all heads."""
    for one in _whole(evidence):
        if one.key_value is not None:
            yield Value("all heads", one.key_value, one.modules["k"])


@below("WGT221", "gate and up: |z mean cos(up, down)| - |z mean cos(gate, down)|", exchanged.MAX_GATE_UP)
def gate_up(evidence: Evidence) -> Iterator[Value]:
    """Over up to 2,048 neurons."""
    for one in _whole(evidence):
        if one.gate_up is not None:
            yield Value("2,048 neurons", one.gate_up, one.modules["up"])


@below("WGT222", "deviations by which the stored order of scales beats the unswizzled one", swizzled.MAX_DEVIATIONS)
def tiles(evidence: Evidence) -> Iterator[Value]:
    """FP4 and MXFP8 in whole tiles."""
    modules = evidence.get("modules")
    for name, number in swizzled.orders_of_scales(evidence.get("module_profiles")).items():
        yield Value(modules[name].form.format, number, name)


@below("WGT222", "their sum over a layer", swizzled.MAX_LAYER_SUM)
def tiles_of_layer(evidence: Evidence) -> Iterator[Value]:
    """Modules of one layer, or of one expert."""
    modules, sums = evidence.get("modules"), dict[tuple[str, int, int | None], float]()
    for name, number in swizzled.orders_of_scales(evidence.get("module_profiles")).items():
        module = modules[name]
        if module.layer is not None:
            key = (module.form.format, module.layer, module.expert)
            sums[key] = sums.get(key, 0.0) + number
    for (form, layer, _), number in sums.items():
        yield Value(form, number, f"layer {layer}")


def _rotary(evidence: Evidence) -> list[tuple[JointProfile, float]]:
    config = evidence.find("model_config")
    sign = rows._expected(config, evidence.find("gguf")) if config is not None else None
    return [(one, one.rotary * sign) for one in profiles(evidence) if one.rotary is not None and sign is not None]


@below("WGT225", "rotary order of a layer, deviations (the milder look)", rows.MAX_LAYER)
def rotary(evidence: Evidence) -> Iterator[Value]:
    """The second look is over all heads."""
    look = evidence.get("block_look")
    for profile, first in _rotary(evidence):
        whole = look.whole(profile) if profile.layer % EVERY == 0 or first < rows.SUSPICIOUS else None
        sign = math.copysign(1, first * (profile.rotary or 1.0))
        second = whole.rotary * sign if whole is not None and whole.rotary is not None else first
        yield Value("a layer", max(first, second), profile.modules["q"])


@below("WGT225", "sum over layers / root of their number", rows.MAX_SUM)
def rotary_sum(evidence: Evidence) -> Iterator[Value]:
    """One number a file."""
    found = [number for _, number in _rotary(evidence)]
    if found:
        yield Value("a file", sum(found) / math.sqrt(len(found)), "the file")


@above("WGT225", "q or k alone: deviations by which halves restore T(q, k), where T is weak", rows.MIN_DEVIATIONS)
def one_side(evidence: Evidence) -> Iterator[Value]:
    """Only layers that deserve the look are asked."""
    look = evidence.get("block_look")
    for profile, _ in _rotary(evidence):
        pair = profile.pair("q", "k")
        if pair is not None and pair.stored < rows.WEAK:
            for stored, restored, count in rows._restored(profile, look).values():
                yield Value("a weak layer", deviations(restored, stored, count), profile.modules["q"])


@above("WGT225", "gate and up dealt out: deviations, where T with down is weak", rows.MIN_DEVIATIONS)
def dealt(evidence: Evidence) -> Iterator[Value]:
    """Only layers whose gate and up are unrelated to down are asked."""
    from degarble.evidence.block_look import deinterleaved

    look = evidence.get("block_look")
    for profile in profiles(evidence):
        pairs = [profile.pair("gate", "down"), profile.pair("up", "down")]
        if {"gate", "up", "down"} <= profile.modules.keys() and all(p and p.stored <= rows.UNRELATED for p in pairs):
            block = look.block(profile)
            try:
                stored, restored, count = deinterleaved(block) if block is not None else (math.nan, math.nan, 1)
            except UNREADABLE:  # inputs that cannot be cut, as the rule has it
                continue
            if block is not None:
                yield Value("a weak layer", deviations(restored, stored, count), profile.modules["up"])
