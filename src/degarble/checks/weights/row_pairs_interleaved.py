"""WGT225: rows that lie in pairs where halves are expected, or the other way round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from degarble.checkpoint.gguf import GgufFile
from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.errors import EvidenceMissing
from degarble.evidence.block_look import BlockLook, deinterleaved, half_order_restores
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix
from degarble.profile.joint import deviations
from degarble.profile.layer import JointProfile
from degarble.profile.sample import UNREADABLE
from degarble.registry import Level, check

HALVES = frozenset(
    {
        "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3",
        "gemma3_text", "phi3", "smollm3", "olmo", "olmo2", "granite", "gpt_oss", "minimax_m2",
    }
)  # fmt: skip
"""model_type of families whose rotary pairs are (i, i + half) in transformers."""

GGUF_HALVES = frozenset(
    {"qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "phi3", "olmo2", "gpt-oss"}
)
GGUF_PAIRS = frozenset({"llama"})
"""llama.cpp's converter reorders q and k of Llama and Mistral into pairs; those of the others stay."""

SUSPICIOUS = -0.5
MAX_LAYER, MAX_SUM = -4.0, -4.0
"""Healthy 2.5 and more a layer over all heads, permuted -3 and less; random weights -3 at least."""
WEAK, WEAK_SHARE, WEAKEST = 4.0, 0.5, 1.5
"""T of q and k that deserves a look: below this, and below half of the median layer's."""
UNRELATED = 3.0
"""T of gate and up with down that deserves a look; healthy layers behind the first have 14 and more."""
MIN_DEVIATIONS, MIN_RATIO = 8.0, 1.25
CHANGED_CODES = ("WGT206", "WGT210", "WGT211")
"""Damage to codes that no order mends, and that every comparison of rows feels."""
EXPLAINED_BY = (*CHANGED_CODES, *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING)


@check("WGT225", confidence=Confidence.LIKELY, level=Level.CONTENT, symptom_of=EXPLAINED_BY)
def row_pairs_interleaved(
    joint: Sequence[JointProfile],
    block_look: BlockLook,
    modules: Modules,
    model_config: ModelConfig,
    gguf: GgufFile | None = None,
) -> Iterator[Finding]:
    """Rows of q_proj and k_proj, or of gate and up, lie in pairs where the architecture expects halves, or reversed.

    ## What it looks for
    A rotary pair is (i, i + half) in transformers and (2i, 2i + 1) in the GGUF of Llama models. In trained attention a
    query row resembles the key row of its rotary partner more than other rows; log of the ratio of both pairings, in
    standard deviations, is above 0.7 in healthy layers and below -3 in all permuted ones. Reported below -4 in a layer,
    or for all layers where the sum over layers divided by the root of their number is below -4 (healthy 15 and more,
    permuted -20.3). Measured on 3,226 layers of 115 checkpoints: docs/calibration.md. If q or k alone was reordered,
    T(q, k) collapses and putting the rows back restores it (30 of 30). Rows of gate and up dealt out in turn are found
    the same way (T with down_proj restored by 8 deviations and a factor of 1.25: 30 of 30). No alarm on healthy models
    or random weights.

    ## Why output turns to garbage
    Rotary embedding turns pairs of numbers that do not belong together, so positions are encoded at random. With gate
    and up mixed, half of each neuron's input is another neuron's.

    ## What you will see
    An immediate end of the answer, or text that loses its thread (perplexity 84 for q and k, 4,500 for k alone); with
    mixed gate and up nonsense from the first token.

    ## How to tell it from its look-alikes
    GGUF files of Llama and Mistral have reordered rows by design, families such as GLM-4 and DeepSeek are interleaved
    natively, partly rotated heads follow other rules: only families whose order is known are judged, others are
    skipped. Layers that AWQ scaled strongly are unclear one by one, their sum is not.

    ## How to confirm
    Compare q_proj with the source: a permutation of rows inside each head makes them equal.

    ## How to repair it
    Reorder the rows with the right number of heads (k has its own). Exact, but the evidence is statistical: not
    unattended.

    ## References
    huggingface/transformers#31788, ggml-org/llama.cpp#2376, jzhang38/TinyLlama#24, vllm-project/vllm#52240
    """
    expected = _expected(model_config, gguf)
    attentions = [one for one in joint if one.rotary is not None]
    mlps = [one for one in joint if {"gate", "up", "down"} <= one.modules.keys()]
    if not mlps and (expected is None or not attentions):
        raise EvidenceMissing("no layer whose order of rows is known")
    if expected is not None:
        yield from _both(attentions, expected, block_look, modules)
        if expected > 0:
            yield from _one_side(attentions, block_look, modules)
    for profile in mlps:
        yield from _dealt(profile, block_look, modules)


def _expected(config: ModelConfig, gguf: GgufFile | None) -> int | None:
    """1 for halves, -1 for pairs; None where nobody said."""
    factor = config.text.get("partial_rotary_factor")
    if isinstance(factor, (int, float)) and factor != 1:
        return None
    if gguf is not None:
        kind = gguf.architecture
        return 1 if kind in GGUF_HALVES else -1 if kind in GGUF_PAIRS else None
    kind = config.text.get("model_type") or config.values.get("model_type")
    return 1 if isinstance(kind, str) and kind in HALVES else None


def _both(
    attentions: Sequence[JointProfile], expected: int, block_look: BlockLook, modules: Modules
) -> Iterator[Finding]:
    signs = {id(one): (one.rotary or 0.0) * expected for one in attentions}
    together = sum(signs.values()) / math.sqrt(max(len(signs), 1))
    for profile in attentions:
        value = signs[id(profile)]
        if value >= SUSPICIOUS:
            continue
        whole = block_look.whole(profile)
        sure = (whole.rotary or 0.0) * expected if whole is not None else 0.0
        if sure < (0.0 if together < MAX_SUM else MAX_LAYER):
            yield from _rotary_findings(profile, ("q", "k"), sure, expected, modules)


def _rotary_findings(
    profile: JointProfile, parts: Sequence[str], value: float, expected: int, modules: Modules
) -> Iterator[Finding]:
    wanted, found = ("halves", "pairs") if expected > 0 else ("pairs", "halves")
    for name in (profile.modules[part] for part in parts if part in profile.modules):
        yield Finding(
            location=modules[name].place(),
            message=f"{name}: rotary partners among the rows of each head lie in {found}, {wanted} are expected "
            f"({value:+.1f} standard deviations, healthy layers are above 0)",
            measured={"deviations": round(value, 2)},
            bound={"min": MAX_LAYER},
            fix=Fix(id="reorder-rotary-rows", safe=False),
            fold="rotary rows",
        )


def _one_side(attentions: Sequence[JointProfile], block_look: BlockLook, modules: Modules) -> Iterator[Finding]:
    scores = {id(one): pair.stored for one in attentions if (pair := one.pair("q", "k")) is not None}
    if not scores:
        return
    limit = min(WEAK, WEAK_SHARE * float(np.median(list(scores.values())))) if len(scores) > 3 else WEAK
    limit = max(limit, WEAKEST)
    for profile in attentions:
        if scores.get(id(profile), limit) >= limit:
            continue
        for part, (stored, restored, count) in _restored(profile, block_look).items():
            z = deviations(restored, stored, count)
            if z > MIN_DEVIATIONS and restored > MIN_RATIO * stored:
                yield from _rotary_findings(profile, (part,), -z, 1, modules)


def _restored(profile: JointProfile, block_look: BlockLook) -> Mapping[str, tuple[float, float, int]]:
    block = block_look.block(profile)
    try:
        return half_order_restores(block) if block is not None else {}
    except UNREADABLE:
        return {}


def _dealt(profile: JointProfile, block_look: BlockLook, modules: Modules) -> Iterator[Finding]:
    pairs = [profile.pair("gate", "down"), profile.pair("up", "down")]
    if any(pair is None or pair.stored > UNRELATED for pair in pairs):
        return
    block = block_look.block(profile)
    try:
        stored, dealt, count = deinterleaved(block) if block is not None else (0.0, 0.0, 1)
    except UNREADABLE:
        return
    z = deviations(dealt, stored, count)
    if z <= MIN_DEVIATIONS or dealt <= MIN_RATIO * stored:
        return
    for name in (profile.modules["gate"], profile.modules["up"]):
        yield Finding(
            location=modules[name].place(),
            message=f"{name}: rows of gate and up lie in turn, halves are expected: dealt out, they fit down_proj at "
            f"T = {dealt:.1f}, as stored at {stored:.1f} (1 is chance)",
            measured={"alignment": round(stored, 2), "alignment_dealt": round(dealt, 2), "deviations": round(z, 1)},
            bound={"deviations_max": MIN_DEVIATIONS, "ratio_max": MIN_RATIO},
            fix=Fix(id="deal-gate-up-rows", safe=False),
            fold="gate and up rows",
        )
