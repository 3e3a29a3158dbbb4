"""A residual stream, or a product of gate and up, brought back into fp16's range without changing the function."""

from __future__ import annotations

import math

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.half_precision import LARGEST_HALF
from degarble.evidence.half_reach import HalfReach
from degarble.evidence.model import ModelConfig
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.formats.interface import PAYLOAD, StoredModule

HEADROOM = 4.0
"""Left free of the range, since longer texts may reach further than the first tokens."""


@repair("rescale-by-powers-of-two")
def rescale_by_powers_of_two(job: Job) -> None:
    """Divide what writes too large numbers by a power of two, and make up for it where they are read.

    ## What it changes
    Residual stream: the embedding, o_proj and down_proj of every layer are divided by 2^k and the norms' epsilon by 4^k;
    every reader of the stream is a norm, which divides by its size. Where the head is the embedding, the last norm is
    multiplied by 2^k. Product of gate and up: up_proj of the layer is divided by 2^k and down_proj multiplied by it.
    Quantised weights keep their codes, only scales change.

    ## Why there is one answer
    Powers of two change no mantissa, so the function is the same to the last bit in fp32 and bf16. How much room to leave
    is a judgement: four times what the first tokens reach.

    ## What it cannot do
    Families whose blocks end in norms, or with factors beside the stream. A weight that would lose bits (fp16 weights
    near the smallest number) is refused.
    """
    job.judge("how much room longer texts need is not known")
    reach: HalfReach = job.need("half_reach")
    product = {row.layer: row for row in reach.rows if row.place == "gate x up"}
    for place in {place.module: place for place in job.places}.values():
        row = product.get(place.layer if place.layer is not None else -1)
        if job.finding.measured.get("place") == "gate x up" and row is not None:
            steps = _steps(row.estimate)
            name = f"model.layers.{row.layer}.mlp"
            _scale(job, f"{name}.up_proj", -steps)
            _scale(job, f"{name}.down_proj", steps, but_bias=True)
    if job.finding.measured.get("place") != "gate x up":
        _rescale_stream(job, _steps(reach.largest("residual add", "output").estimate))


def _steps(estimate: float) -> int:
    if not math.isfinite(estimate):
        raise CannotRepair("the first tokens are not finite even in fp32")
    return max(0, math.ceil(math.log2(max(estimate, 1e-30) * HEADROOM / LARGEST_HALF)))


def _rescale_stream(job: Job, steps: int) -> None:
    config: ModelConfig = job.need("model_config")
    key = config.place("rms_norm_eps")
    if "rms_norm_eps" not in config.text or key.file is None or key.key is None:
        raise CannotRepair("the config has no rms_norm_eps that could be divided")
    names = ["model.embed_tokens"]
    for layer in range(int(config.text["num_hidden_layers"])):
        names += [f"model.layers.{layer}.self_attn.o_proj", f"model.layers.{layer}.mlp.down_proj"]
    for name in names:
        _scale(job, name, -steps)
    if config.text.get("tie_word_embeddings", False) or "lm_head" not in job.modules.by_canonical:
        _scale(job, "model.norm", steps)
    job.set_key(key.file, key.key, float(config.text["rms_norm_eps"]) / 4**steps, f"divided by 4^{steps}")


def _scale(job: Job, name: str, steps: int, *, but_bias: bool = False) -> None:
    """Multiply a module by 2^steps. Raises CannotRepair if a number would lose bits."""
    module = job.modules.by_canonical.get(name)
    if module is None:
        raise CannotRepair(f"{name} is not in the checkpoint")
    what = f"times 2^{steps}"
    if module.form.format == "plain":
        job.set_part(module, PAYLOAD, _exact(module, module.array(PAYLOAD), steps), what)
    elif module.form.is_quantized:
        factor = np.float32(2.0**steps)
        job.replace(module, what, scales=module.scales() * factor)
    else:
        raise CannotRepair(f"{name}: stored in a form that cannot be scaled")
    if "bias" in module.form.roles and not but_bias:
        job.set_part(module, "bias", _exact(module, module.array("bias"), steps), what)


def _exact(module: StoredModule, stored: Array, steps: int) -> Array:
    scaled: Array = (stored.astype(np.float32) * np.float32(2.0**steps)).astype(stored.dtype)
    if not bool((scaled.astype(np.float32) * np.float32(2.0**-steps) == stored.astype(np.float32)).all()):
        raise CannotRepair(f"{module.name}: numbers would lose bits")
    return scaled
