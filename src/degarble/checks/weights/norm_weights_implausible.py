"""WGT217: norm weights that contradict their convention or their peers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping

from degarble.architectures.interface import Architecture
from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.evidence.layer_series import LayerSeries, deviations, layer_series, with_peers
from degarble.evidence.modules import Modules
from degarble.evidence.norm_gains import log_gain
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

MIN_COUNT = 16
NEGATIVE_SHARE = 0.9
ZERO_SHARE = 0.02
MANY_ZEROS = 0.1
NATS = 1.0
"""Natural logarithm of the factor to the median of the other layers, and to both neighbours."""
HEAD_NORMS = ("q_norm", "k_norm", "q_a_layernorm", "kv_a_layernorm", "q_layernorm", "k_layernorm")
"""Norms inside attention jump from layer to layer in healthy models: no peers."""
EXPLAINED_BY = ("WGT203", *DAMAGED_FILE)
RESTORE = Fix(id="restore-module", safe=False)
ADD_ONE = Fix(id="add-one-to-norm", safe=False)
SUBTRACT_ONE = Fix(id="subtract-one-from-norm", safe=False)


@check("WGT217", level=Level.CONTENT, confidence=Confidence.LIKELY, symptom_of=EXPLAINED_BY)
def norm_weights_implausible(
    modules: Modules, profiles: Mapping[str, TensorProfile], architecture: Architecture | None = None
) -> Iterator[Finding]:
    """The weights of a norm cannot be right: all zero, nearly all negative, or far from the same norm in other layers.

    ## What it looks for
    Norms of the text model, all bytes. Where norms multiply by w: all zero is an error, zeros at 10 % of the places too
    (2 %: warning), and more than 90 % negative values mean that 1 was subtracted once too often (healthy 47 % at most).
    Norms that multiply by 1 + w are not judged by sign. From four layers on, a norm whose rms differs by more than a
    factor of e from the median of the other layers and from its neighbours is an error (healthy without layer 0: a
    factor of 2.1 in AWQ's folds, 1.14 without). Layer 0 is left out: it is healthy at a factor of 8. Measured on 7,391
    norms of 157 checkpoints: docs/calibration.md.

    ## Why output turns to garbage
    A norm scales every activation behind it. Whether the file holds w or 1 + w is a convention of the family; a
    converter that adds or subtracts the 1 twice, or folds scales into one norm only, changes every layer.

    ## What you will see
    Token soup or empty answers at once: 1 added twice gives a perplexity of 2e10, a fold on a 1 + w norm 24,560.

    ## How to tell it from its look-alikes
    Means of healthy norms run from 0 to 1.8, and layer 0 has almost half its values below zero, so neither mean nor
    "about 1" says anything. All ones (or zeros under 1 + w) are untrained norms: information. A 1 added in every layer
    cannot be told from healthy values, nor can a factor of 16 in layer 0.

    ## How to confirm
    Compare with the source model's norm: the difference is exactly 1, or a constant factor.

    ## How to repair it
    Copy the norms from the source model; norms are never quantised, so that is exact. Adding 1 back, or
    subtracting one that was added twice, is exact only if the file was written in fp32. Not safe unattended.

    ## References
    ml-explore/mlx-lm#1442, ml-explore/mlx-lm#1198, vllm-project/llm-compressor#2102, Blaizzy/mlx-vlm#2041
    """
    adds_one = architecture is not None and architecture.norm_convention == "1+w"
    for module in modules.values():
        payload = module.payload
        profile = profiles.get(payload.name) if payload is not None else None
        if module.kind == "norm" and profile is not None and profile.count >= MIN_COUNT and not profile.nonfinite:
            yield from _alone(module, profile, adds_one)


def _alone(module: StoredModule, profile: TensorProfile, adds_one: bool) -> Iterator[Finding]:
    """What one norm tells without its peers."""
    counts = profile.counts
    zeros = profile.count if profile.is_zero else counts.zeros if counts is not None else 0
    negatives = _num_negative(profile)
    if profile.constant is not None or profile.is_zero:
        is_dead = profile.is_zero and not adds_one
        yield _constant(module, profile, is_dead)
    elif not adds_one and zeros > ZERO_SHARE * profile.count:
        yield _finding(
            module,
            f"{zeros} of {profile.count} values are zero: those channels are switched off",
            {"zero_share": zeros / profile.count},
            {"zero_share_max": ZERO_SHARE},
            Severity.ERROR if zeros > MANY_ZEROS * profile.count else Severity.WARNING,
        )
    elif not adds_one and negatives > NEGATIVE_SHARE * profile.count:
        yield _finding(
            module,
            f"{negatives} of {profile.count} values are negative, their mean is {profile.mean or 0:.3g}: this family "
            "multiplies by the stored value, so 1 was subtracted once too often",
            {"negative_share": negatives / profile.count, "mean": profile.mean or 0.0},
            {"negative_share_max": NEGATIVE_SHARE},
            None,
            "negative",
        )


def _num_negative(profile: TensorProfile) -> int:
    return profile.counts.negatives if profile.counts is not None else 0


def _constant(module: StoredModule, profile: TensorProfile, is_dead: bool) -> Finding:
    if is_dead:
        text = "all values are zero: the norm's output is zero for every token"
        return _finding(module, text, {"absmax": 0.0}, {"absmax_min": 0.0}, Severity.ERROR, "zero")
    return _finding(
        module,
        f"all values are {profile.absmax or 0:.4g}: a norm that was never trained",
        {"absmax": profile.absmax or 0.0},
        {"distinct_min": 2},
        Severity.INFO,
        "constant",
    )


def _finding(
    module: StoredModule,
    text: str,
    measured: Mapping[str, float],
    bound: Mapping[str, float],
    severity: Severity | None,
    fold: str = "zeros",
) -> Finding:
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name}: {text}",
        severity=severity,
        confidence=Confidence.PROVEN if fold in ("zero", "constant") else None,
        measured={key: round(value, 4) for key, value in measured.items()},
        bound=dict(bound),
        fold=fold,
        fix=None if severity is Severity.INFO else ADD_ONE if fold == "negative" else RESTORE,
    )


@check("WGT217", level=Level.CONTENT, confidence=Confidence.LIKELY, symptom_of=EXPLAINED_BY)
def norm_differs_from_peers(
    modules: Modules, profiles: Mapping[str, TensorProfile], architecture: Architecture | None = None
) -> Iterator[Finding]:
    """A norm far from the same norm in other layers."""
    adds_one = architecture is not None and architecture.norm_convention == "1+w"
    is_mtp = frozenset(architecture.mtp_layers) if architecture is not None else frozenset[int]()
    series = layer_series(modules, lambda m: m.kind == "norm" and m.name.rpartition(".")[2] not in HEAD_NORMS)
    for one in with_peers(list(series), "norms"):
        sizes = _log_gains(one, profiles, adds_one, is_mtp)
        away = deviations(sizes) if len(sizes) >= 4 else {}
        for layer, distance in away.items():
            if layer > 0 and abs(distance) > NATS and _leaves_neighbours(sizes, layer, distance):
                has_one_more = distance > 0 and _has_one_more(one, layer, profiles, sizes, adds_one)
                yield _away(one.by_layer[layer], distance, adds_one, SUBTRACT_ONE if has_one_more else RESTORE)


def _log_gains(
    series: LayerSeries, profiles: Mapping[str, TensorProfile], adds_one: bool, is_mtp: frozenset[int]
) -> dict[int, float]:
    """Layer -> log rms of what the norm multiplies by."""
    sizes: dict[int, float] = {}
    for layer, module in series.by_layer.items():
        profile = profiles.get(module.payload.name) if module.payload is not None else None
        gain = log_gain(profile, adds_one) if profile is not None else None
        if profile is None or gain is None or layer in is_mtp:
            continue
        if adds_one or _num_negative(profile) <= NEGATIVE_SHARE * profile.count:  # else its sign is worse, and reported
            sizes[layer] = gain
    return sizes


def _leaves_neighbours(sizes: Mapping[int, float], layer: int, distance: float) -> bool:
    """Whether the jump is there on both sides, so that a trend over the layers is none."""
    layers = sorted(sizes)
    at = layers.index(layer)
    near = [sizes[layers[other]] for other in (at - 1, at + 1) if 0 <= other < len(layers)]
    return all((sizes[layer] - other) * math.copysign(1, distance) > NATS for other in near)


def _has_one_more(
    series: LayerSeries, layer: int, profiles: Mapping[str, TensorProfile], sizes: Mapping[int, float], adds_one: bool
) -> bool:
    """Whether one norm is that of the peers with one added: its values spread as theirs, and with one subtracted, its
    gain is theirs: mean((g - 1)^2) = mean(g^2) - 2 mean(g) + 1. A norm that was scaled spreads more.
    """
    moments = {
        at: (math.exp(2 * sizes[at]), profile.mean + adds_one)
        for at in sizes
        if (payload := series.by_layer[at].payload) is not None
        if (profile := profiles.get(payload.name)) is not None and profile.mean is not None
    }
    others = [one for at, one in moments.items() if at != layer]
    if layer not in moments or not others:
        return False
    square, mean = moments[layer]
    pairs = (
        (square - 2 * mean + 1, [square for square, _ in others]),
        (square - mean**2, [square - mean**2 for square, mean in others]),
    )
    return all(
        here > 0 and (usual := statistics.median(there)) > 0 and abs(0.5 * math.log(here / usual)) < NATS / 2
        for here, there in pairs
    )


def _away(module: StoredModule, distance: float, adds_one: bool, fix: Fix) -> Finding:
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name}: its gain is {math.exp(abs(distance)):.3g} times "
        f"{'larger' if distance > 0 else 'smaller'} than the median of the same norm in other layers",
        severity=Severity.WARNING if adds_one else None,
        measured={"log_ratio": round(distance, 3)},
        bound={"log_ratio_max": NATS},
        fold="peers" if fix is RESTORE else "one more",
        fix=fix,
    )
