"""Statistics of healthy checkpoints behind the bounds in the rules' pages, one table.

Usage: calibrate_rules.py CHECKPOINT...   folders or .gguf files that are known to be healthy. A check's bound must lie
beyond the worst value of its column's rule; say in the page how many checkpoints and tensors stood behind it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from degarble.checks.weights.norm_weights_implausible import HEAD_NORMS
from degarble.checks.weights.scales_swizzled import orders_of_scales
from degarble.evidence import Evidence, Settings
from degarble.evidence.layer_series import MIN_LAYERS, deviations, layer_series
from degarble.evidence.norm_gains import norm_gains
from degarble.evidence.pack_orders import bests
from degarble.profile.joint import deviations as deviations_of
from degarble.profile.module_profile import CodeStats
from degarble.profile.repeated_rows import repeated_rows
from degarble.target import open_target

Row = tuple[str, float | None, int]
"""What is measured, its worst value (None: nothing to measure), and on how many tensors or modules."""


def not_finite(evidence: Evidence) -> Row:
    """WGT201, WGT203."""
    profiles = evidence.get("profiles").values()
    return "WGT201/203 tensors with NaN or infinity", sum(p.nonfinite > 0 for p in profiles), len(profiles)


def dead_rows(evidence: Evidence) -> Row:
    """WGT204, WGT205."""
    found = evidence.get("dead_outputs").values()
    return "WGT204/205 most dead outputs in a module", max((d.count for d in found), default=None), len(found)


def rounded_scales(evidence: Evidence) -> Row:
    """WGT214."""
    profiles = evidence.get("module_profiles").values()
    shares = [p.reach for p in profiles if p.reach is not None and p.scales and p.scales.power_of_two == 1.0]
    return "WGT214 largest share at the top, scales 2^k", max(shares, default=None), len(shares)


def wide_scales(evidence: Evidence) -> Row:
    """WGT215."""
    profiles = evidence.get("profiles")
    parts = [
        part
        for m in evidence.get("modules").values()
        if (part := m.part("scale")) and part.dtype in ("F32", "F16", "BF16")
    ]
    sizes = [p.absmax for part in parts if (p := profiles.get(part.name)) and p.absmax is not None]
    return "WGT215 largest 16- or 32-bit scale", max(sizes, default=None), len(sizes)


def negative_norms(evidence: Evidence) -> Row:
    """WGT217, share of negative values."""
    profiles = evidence.get("profiles")
    norms = [profiles[m.payload.name] for m in evidence.get("modules").values() if m.kind == "norm" and m.payload]
    shares = [p.counts.negatives / p.count for p in norms if p.counts and p.count]
    return "WGT217 largest share of negative norm values", max(shares, default=None), len(shares)


def norm_jumps(evidence: Evidence) -> Row:
    """WGT217, distance to the other layers in nats, layer 0 left out."""
    profiles, worst, count = evidence.get("profiles"), None, 0
    for one in layer_series(
        evidence.get("modules"), lambda m: m.kind == "norm" and m.name.rpartition(".")[2] not in HEAD_NORMS
    ):
        sizes = {layer: math.log(rms) for layer, m in one.by_layer.items() if (rms := profiles[m.any_part.name].rms)}
        if len(sizes) >= MIN_LAYERS:
            away = [abs(distance) for layer, distance in deviations(sizes).items() if layer]
            worst, count = max(worst or 0.0, *away), count + len(away)
    return "WGT217 largest log ratio to other layers", worst, count


def repeated_tokens(evidence: Evidence) -> Row:
    """WGT226."""
    worst, count = None, 0
    for module in evidence.get("modules").values():
        if module.kind == "embedding" and module.payload is not None:
            rows = repeated_rows(module.reader.raw(module.payload), module.payload.shape[0])
            worst, count = max(worst or 0, sum(len(group) - 1 for group in rows)), count + module.payload.shape[0]
    return "WGT226 rows of the embedding that repeat another", worst, count


def kv_scales(evidence: Evidence) -> Row:
    """WGT224."""
    profiles = evidence.get("profiles")
    sizes = [
        p.absmax for name in evidence.find("kv_scales") or () if (p := profiles.get(name)) and p.absmax is not None
    ]
    return "WGT224 largest scale of the KV cache", max(sizes, default=None), len(sizes)


def copies(evidence: Evidence) -> Row:
    """WGT220."""
    found = evidence.get("twins")
    num = sum(len(members) for members in found.by_layer.values())
    return "WGT220 equal payloads", len(found.layers) + len(found.experts) + len(found.modules) + len(found.slices), num


def norm_peaks(evidence: Evidence) -> Row:
    """NUM301, NUM303."""
    gains = list(norm_gains(evidence.get("modules"), evidence.get("profiles"), evidence.find("architecture")))
    return "NUM301/303 largest |gain| * sqrt(width)", max((g.peak for g in gains), default=None), len(gains)


def zero_points(evidence: Evidence) -> Row:
    """WGT206, below 8 bits."""
    found = [codes.shift for codes in _codes(evidence) if codes.num_bits < 8]
    return "WGT206 largest |mean code - zero point|", max((abs(one) for one in found), default=None), len(found)


def zero_point_order(evidence: Evidence) -> Row:
    """WGT207; the smallest is the worst, so it is shown as 1 - correlation."""
    found = [codes.correlation for codes in _codes(evidence) if codes.correlation is not None]
    return "WGT207 1 - smallest correlation with zero points", 1 - min(found) if found else None, len(found)


def group_ends(evidence: Evidence) -> Row:
    """WGT208, as the second look sees it: rho over its bound."""
    look, modules = evidence.get("second_look"), evidence.get("modules")
    wide = [one for m in modules.linears() if (one := look.codes(m)) is not None and one.stats.num_bits <= 4]
    shares = [one.rho_by_size[one.size] / one.bound for one in wide if one.size in one.rho_by_size]
    return "WGT208 largest rho / bound at the stored size", max(shares, default=None), len(shares)


def upper_halves(evidence: Evidence) -> Row:
    """WGT210, distance from one half."""
    found = [abs(codes.upper_half - 0.5) for codes in _codes(evidence)]
    return "WGT210 largest |share in the upper half - 0.5|", max(found, default=None), len(found)


def end_ratios(evidence: Evidence) -> Row:
    """WGT211, asymmetric."""
    found = [
        math.log(codes.histogram[0] / codes.histogram[-1])
        for codes in _codes(evidence)
        if codes.correlation is not None and codes.num_bits in (3, 4) and codes.histogram[0] and codes.histogram[-1]
    ]
    return "WGT211 largest log(lowest / highest code)", max(found, default=None), len(found)


def pack_orders(evidence: Evidence) -> Row:
    """WGT209, deviations of the best order that nobody used, rotary partners left out."""
    found = [
        deviations_of(value, pair.stored, pair.count)
        for profile in evidence.find("joint") or ()
        for pair in profile.pairs
        for value in bests(profile, pair).values()
    ]
    return "WGT209 largest deviations of another order", max(found, default=None), len(found)


def exchanged(evidence: Evidence) -> Row:
    """WGT221, over all rows; the smallest is the worst, so it is shown negative."""
    look = evidence.get("block_look")
    whole = [one for profile in evidence.find("joint") or () if (one := look.whole(profile)) is not None]
    found = [-4 * one.key_value for one in whole if one.key_value is not None]
    found += [-one.gate_up for one in whole if one.gate_up is not None]
    return "WGT221 - smallest statistic (k/v times 4)", max(found, default=None), len(found)


def swizzles(evidence: Evidence) -> Row:
    """WGT222, shown negative."""
    found = orders_of_scales(evidence.get("module_profiles"))
    return "WGT222 - smallest deviations", max((-one for one in found.values()), default=None), len(found)


def magnitudes(evidence: Evidence) -> Row:
    """WGT216, WGT229."""
    found = evidence.find("magnitudes") or ()
    return (
        "WGT216/229 largest |log ratio| to other layers",
        max((abs(m.deviation) for m in found), default=None),
        len(found),
    )


def _codes(evidence: Evidence) -> list[CodeStats]:
    return [one.codes for one in evidence.get("module_profiles").values() if one.codes is not None]


MEASURES: tuple[Callable[[Evidence], Row], ...] = (
    not_finite,
    dead_rows,
    rounded_scales,
    wide_scales,
    negative_norms,
    norm_jumps,
    copies,
    kv_scales,
    repeated_tokens,
    norm_peaks,
    zero_points,
    zero_point_order,
    group_ends,
    upper_halves,
    end_ratios,
    pack_orders,
    exchanged,
    swizzles,
    magnitudes,
)


def main(targets: list[str]) -> None:
    """Print the worst value of every measure over all checkpoints, and where it was."""
    evidences = {target: Evidence(open_target(target), Settings()) for target in targets}
    for measure in MEASURES:
        rows = {target: measure(evidence) for target, evidence in evidences.items()}
        known = {target: row for target, row in rows.items() if row[1] is not None}
        worst = max(known, key=lambda target: known[target][1] or 0.0, default=None)
        total = sum(row[2] for row in known.values())
        label = next(iter(rows.values()))[0]
        value = "-" if worst is None else f"{known[worst][1]:.6g}  ({worst.rstrip('/').rpartition('/')[2]})"
        print(f"{label:52} n={total:<8} {value}")


if __name__ == "__main__":
    main(sys.argv[1:])
