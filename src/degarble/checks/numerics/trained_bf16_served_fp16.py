"""NUM301: a model trained in bf16 is served in fp16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from degarble.architectures.interface import Architecture
from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.evidence.half_precision import HALF, LARGEST_HALF
from degarble.evidence.half_reach import HalfReach
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.norm_gains import norm_gains
from degarble.evidence.store import Settings
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

BRAIN = frozenset({"bfloat16", "bf16"})
REFUSED = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4", "plamo2"})
"""Model types that vLLM does not serve in fp16 ("Numerical instability"); see numerics.md."""
KEYS = ("dtype", "torch_dtype")
NARROW = 32.0
SAFE_MARGIN = 2.0
"""What the first tokens must leave free of fp16's range; a policy, since texts may reach further."""
SAMPLE = 4096
LOST_BITS = np.uint16(0x0007)
"""fp16 has three more mantissa bits than bf16: numbers cast from bf16 leave them zero."""
SERVE_WIDE = Fix(id="serve-in-bfloat16", safe=False)


@check("NUM301", severity=Severity.WARNING, confidence=Confidence.LIKELY, level=Level.HEADER)
def trained_bf16_served_fp16(
    settings: Settings, model_config: ModelConfig, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """A model that was trained in bf16 is to be served in fp16, whose range is 10^33 times smaller.

    ## What it looks for
    The type to serve in: `--dtype`, else the config's. If `--dtype float16` is asked for and the config says bfloat16,
    that is a warning, as is fp16 for model types that engines refuse to run in it (gemma2, gemma3, glm4, plamo2). With
    values at hand and `--dtype float16`, embeddings of a few first tokens are taken through the weights of plain
    Llama-like models (no text is needed: the first token attends to itself alone): a residual stream, or a product of
    gate and up, with a margin of less than 2 to 65504 is a warning at its module. Also fp16 checkpoints whose weights
    prove to be cast from bf16 (their last three mantissa bits are zero): a norm that uses more than 1/32 of fp16's range
    is then a warning, with the margin. These bounds are policies, not measurements: healthy SmolLM2 has norms of 0.12 %
    of the range and a stream of 41 % of it.

    ## Why output turns to garbage
    Activations trained in bf16 may reach any size; fp16 ends at 65504. The residual stream, the product of gate and
    up, attention scores and the sum of squares in a norm overflow first. Overflow in a norm gives zeros, elsewhere
    NaN.

    ## What you will see
    "!!!!" or NaN, on long prompts or from the first token; fine text in bf16. A 135M model already uses 37 % of the
    range.

    ## How to tell it from its look-alikes
    Most models run in fp16 without harm: this is a risk, NUM302 proves it with a forward pass. A config that
    contradicts the stored weights is CFG108. GGUF engines keep the residual in fp32.

    ## How to confirm
    Serve the same prompt with `--dtype bfloat16` and compare.

    ## How to repair it
    Use bf16, with kernels that support it (awq_marlin, gptq_marlin). A setting of the server: nothing in the
    checkpoint changes, so there is nothing to do unattended.

    ## References
    vllm-project/vllm#13232, vllm-project/vllm#14126, vllm-project/vllm#15002, QwenLM/Qwen3#826
    """
    declared, key = _declared(model_config)
    asked = (settings.dtype or "").lower()
    served = asked if asked not in ("", "auto") else declared
    if served not in HALF or model_config.gguf is not None:
        return
    model_type = architecture.model_type if architecture is not None else str(model_config.text.get("model_type"))
    is_refused = model_type in REFUSED
    if is_refused or (asked in HALF and declared in BRAIN):
        why = f"{model_type} is known to overflow in it" if is_refused else f"{key} says {declared}"
        yield Finding(
            location=model_config.place(key),
            message=f"served in fp16, and {why}: activations beyond {LARGEST_HALF:.0f} become infinite",
            measured={"served": served, "declared": declared},
            bound={"largest": LARGEST_HALF},
            fold="policy",
            fix=SERVE_WIDE,
        )


@check(
    "NUM301",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=("NUM303", "WGT203", "WGT217", *DAMAGED_FILE),
)
def narrow_margin_in_half(
    settings: Settings,
    modules: Modules,
    profiles: Mapping[str, TensorProfile],
    model_config: ModelConfig,
    architecture: Architecture | None = None,
) -> Iterator[Finding]:
    """A norm that uses up most of fp16's range, in a model that was trained in bf16 and is served in fp16."""
    declared, _ = _declared(model_config)
    asked = (settings.dtype or "").lower()
    served = asked if asked not in ("", "auto") else declared
    if served not in HALF or model_config.gguf is not None:
        return
    if declared not in BRAIN and not _is_cast_from_brain(modules):
        return
    for gain in norm_gains(modules, profiles, architecture):
        if LARGEST_HALF / NARROW < gain.peak <= LARGEST_HALF:
            yield Finding(
                location=gain.module.place(),
                message=f"{gain.module.any_part.name}: its output may reach {gain.peak:.5g}, a margin of "
                f"{LARGEST_HALF / gain.peak:.3g} to fp16's largest number, in a model that was trained in bf16",
                measured={"peak": gain.peak, "margin": LARGEST_HALF / gain.peak},
                bound={"margin_min": NARROW},
                fold="margin",
                fix=SERVE_WIDE,
            )


@check(
    "NUM301",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=("NUM303", "WGT203", "WGT217", *DAMAGED_FILE),
)
def first_token_beyond_half(half_reach: HalfReach) -> Iterator[Finding]:
    """The first token alone takes the residual stream, or the product of gate and up, near or beyond fp16's end."""
    rows = [half_reach.largest("residual add", "output")]
    rows += [row for row in half_reach.rows if row.place == "gate x up"]
    for row in rows:
        if row.margin < SAFE_MARGIN:
            yield Finding(
                location=row.location,
                message=f"{row.location.module}: by the weights alone its {row.place} reaches {row.estimate:.5g} on the "
                f"first token, a margin of {row.margin:.3g} to fp16's largest number",
                measured={"estimate": row.estimate, "bound": row.bound, "margin": row.margin, "place": row.place},
                bound={"margin_min": SAFE_MARGIN},
                fold="reach" if row.place == "gate x up" else "stream",
                fix=Fix(id="rescale-by-powers-of-two", safe=False),
            )


def _declared(config: ModelConfig) -> tuple[str, str]:
    """The declared type, and the key that says it."""
    for key in KEYS:
        for values in (config.values, config.text):
            value = values.get(key)
            if isinstance(value, str):
                return value.lower().removeprefix("torch."), key
    return "", KEYS[0]


def _is_cast_from_brain(modules: Modules) -> bool:
    """Whether a sample of every large fp16 matrix has the last three mantissa bits at zero."""
    found = [m for m in modules.values() if m.form.format == "plain" and _is_large_half(m)]
    return bool(found) and all(_has_zero_tail(module) for module in found)


def _is_large_half(module: StoredModule) -> bool:
    return module.payload is not None and module.payload.dtype == "F16" and module.payload.nbytes >= 2 * SAMPLE


def _has_zero_tail(module: StoredModule) -> bool:
    words = module.reader.raw(module.any_part)[: 2 * SAMPLE].view("<u2")
    normal = words[(words & 0x7C00) > 0x0C00]
    return bool(normal.size) and not bool((normal & LOST_BITS).any())
