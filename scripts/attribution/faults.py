"""What is planted to measure attribution: in stored values (codes, scales, zero points), norms, the config, the embedding."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from scripts.attribution.job import LINEARS, Expected, Job, encoded, units

from degarble.checkpoint.tensor_data import Array


def on_units(
    change: Callable[[Array, random.Random], Array], leaves: tuple[str, ...] = LINEARS
) -> Callable[[Job], Expected]:
    """A fault in the codes."""

    def plant(job: Job) -> Expected:
        module = job.linear(leaves)
        return job.put(module, codes=encoded(module, change(units(module).copy(), job.rng)))

    return plant


def on_scales(
    change: Callable[[Array, random.Random], Array], leaves: tuple[str, ...] = LINEARS
) -> Callable[[Job], Expected]:
    """A fault in the scales; in the values where there are none."""

    def plant(job: Job) -> Expected:
        module = job.linear(leaves)
        if module.form.scheme is None:
            factors = change(np.ones((module.codes().shape[0], module.codes().shape[1] // 64), np.float32), job.rng)
            return job.put(module, codes=units(module) * np.repeat(factors, 64, 1))
        return job.put(module, scales=change(module.scales().astype(np.float32).copy(), job.rng))

    return plant


def rows_of(values: Array, rng: random.Random, factor: float, count: int = 1) -> Array:
    """Some rows, scaled."""
    rows = rng.sample(range(values.shape[0]), min(count, values.shape[0]))
    values[rows] *= factor
    return values


def pairs_swapped(values: Array, _: random.Random) -> Array:
    """Neighbouring columns exchanged, as by swapped nibbles."""
    return values.reshape(values.shape[0], -1, 2)[:, :, ::-1].reshape(values.shape)


def awq_order(values: Array, _: random.Random) -> Array:
    """Columns in the order of AWQ's nibbles."""
    return values.reshape(values.shape[0], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(values.shape)


def noisy(share: float) -> Callable[[Array, random.Random], Array]:
    """Noise of a share of the standard deviation."""
    return lambda values, rng: (
        values
        + np.random.default_rng(rng.randrange(1 << 30)).normal(0, share * values.std(), values.shape).astype(np.float32)
    )


def gguf_order(values: Array, _: random.Random) -> Array:
    """Rotary rows in pairs."""
    return values.reshape(-1, 2, 32, values.shape[1]).transpose(0, 2, 1, 3).reshape(values.shape)


def zero_point(job: Job) -> Expected:
    """Zero points one too large; a constant offset where there are none."""
    module = job.linear()
    zeros = module.zeros()
    if zeros is not None:
        return job.put(module, zeros=np.clip(zeros + 1, 0, 15))
    values = units(module)
    return job.put(module, codes=encoded(module, values + 0.15 * values.std()))


def exchanged(one: str, other: str) -> Callable[[Job], Expected]:
    """Two modules of one layer in each other's place."""

    def plant(job: Job) -> Expected:
        layer = job.rng.randrange(30)
        first, second = (job.module(f"model.layers.{layer}.{leaf}") for leaf in (one, other))
        for suffix in first.parts:
            mine, theirs = (np.array(m.reader.read(m.parts[suffix])) for m in (first, second))
            job.work.set(first.parts[suffix].name, theirs)
            job.work.set(second.parts[suffix].name, mine)
        return [{"module": first.canonical}, {"module": second.canonical}]

    return plant


def layers_exchanged(job: Job) -> Expected:
    """Two neighbouring layers in each other's place."""
    layer = job.rng.randrange(2, 27)
    for name, info in job.evidence.get("tensors").items():
        if name.startswith(f"model.layers.{layer}."):
            other = job.evidence.get("tensors")[name.replace(f"layers.{layer}.", f"layers.{layer + 1}.")]
            mine, theirs = (np.array(job.evidence.get("reader").read(one)) for one in (info, other))
            job.work.set(info.name, theirs)
            job.work.set(other.name, mine)
    return [{"layer": layer}, {"layer": layer + 1}]


def norm(change: Callable[[Array], Array]) -> Callable[[Job], Expected]:
    """A fault in the gain of a norm."""

    def plant(job: Job) -> Expected:
        leaf = job.rng.choice(("input_layernorm", "post_attention_layernorm"))
        module = job.module(f"model.layers.{job.rng.randrange(1, 29)}.{leaf}")
        values = module.dequantize()
        return job.put(module, codes=change(values.copy()))

    return plant


def config(key: str, value: Any) -> Callable[[Job], Expected]:
    """Another number in config.json."""

    def plant(job: Job) -> Expected:
        values = job.work.json("config.json")
        rope = values.get("rope_parameters")
        if key == "rope_theta" and isinstance(rope, dict):
            rope[key] = value
            return [{"file": "config.json", "key": "rope_parameters"}]
        values[key] = value
        return [{"file": "config.json", "key": key}]

    return plant


def forgotten_fold(job: Job) -> Expected:
    """A norm divided by s, and one of three consumers not multiplied (others are, in their values)."""
    layer = job.rng.randrange(1, 29)
    gain = job.module(f"model.layers.{layer}.input_layernorm")
    values = gain.dequantize()
    scale = np.exp(np.random.default_rng(layer).normal(0, 0.4, values.shape)).astype(np.float32)
    job.put(gain, codes=values / scale)
    forgotten = job.rng.choice(("q_proj", "k_proj", "v_proj"))
    for leaf in ("q_proj", "k_proj", "v_proj"):
        module = job.module(f"model.layers.{layer}.self_attn.{leaf}")
        if leaf != forgotten:
            job.put(module, codes=module.dequantize() * scale)
    return [{"module": f"model.layers.{layer}.self_attn.{forgotten}"}]


def not_finite(job: Job) -> Expected:
    """One NaN."""
    module = job.linear()
    if module.form.scheme is None:
        values = units(module)
        values[3, 5] = np.nan
        return job.put(module, codes=values)
    scales = module.scales().astype(np.float32).copy()
    scales[0, 0] = np.nan
    return job.put(module, scales=scales)


def embedding_scaled(job: Job) -> Expected:
    """The embedding, 5 % too large."""
    module = job.module("model.embed_tokens")
    return job.put(module, codes=module.dequantize() * 1.05)


def scale_missing(job: Job) -> Expected:
    """The scale of one k_proj is not in the file, and loaders read its codes raw."""
    module = job.linear(("self_attn.k_proj",))
    scale = module.part("scale")
    assert scale is not None
    job.work.drop(scale.name)
    return [{"module": module.canonical}]


def layer_scales_zero(job: Job) -> Expected:
    """Every scale of one layer is zero."""
    layer = job.rng.randrange(30)
    for leaf in LINEARS:
        module = job.module(f"model.layers.{layer}.{leaf}")
        if module.form.scheme is None:
            job.put(module, codes=units(module) * 0)
        else:
            job.put(module, scales=module.scales().astype(np.float32) * 0)
    return [{"layer": layer}]


def layer_in_awq_order(job: Job) -> Expected:
    """Every linear of one layer in AWQ's order of nibbles."""
    layer = job.rng.randrange(30)
    for leaf in LINEARS:
        module = job.module(f"model.layers.{layer}.{leaf}")
        job.put(module, codes=encoded(module, awq_order(units(module), job.rng)))
    return [{"layer": layer}]


def huge_element(values: Array, rng: random.Random) -> Array:
    """One value fifty times the largest, or as large as codes go."""
    values[rng.randrange(values.shape[0]), rng.randrange(values.shape[1])] = 50 * np.abs(values).max()
    return values


FAULTS: dict[str, Callable[[Job], Expected]] = {
    "all zero": on_units(lambda values, _: values * 0),
    "sign flipped": on_units(lambda values, _: -values),
    "columns rolled by 8": on_units(lambda values, _: np.roll(values, 8, 1)),
    "nibbles swapped": on_units(pairs_swapped),
    "AWQ order": on_units(awq_order),
    "rows in GGUF order": on_units(gguf_order, ("self_attn.q_proj", "self_attn.k_proj")),
    "eight rows zero": on_units(lambda values, rng: rows_of(values, rng, 0.0, 8)),
    "one row doubled": on_units(lambda values, rng: rows_of(values, rng, 2.0)),
    "noise 0.25 std": on_units(noisy(0.25)),
    "noise 0.5 std": on_units(noisy(0.5)),
    "scale 0.85": on_scales(lambda scales, _: scales * 0.85),
    "scale 1.2": on_scales(lambda scales, _: scales * 1.2),
    "scale 0.95": on_scales(lambda scales, _: scales * 0.95),
    "scales rolled by a group": on_scales(lambda scales, _: np.roll(scales, 1, -1)),
    "scales zero": on_scales(lambda scales, _: scales * 0),
    "a row's scale x16": on_scales(lambda scales, rng: rows_of(scales, rng, 16.0)),
    "a row's scale x0.5": on_scales(lambda scales, rng: rows_of(scales, rng, 0.5)),
    "zero point + 1": zero_point,
    "k and v exchanged": exchanged("self_attn.k_proj", "self_attn.v_proj"),
    "gate and up exchanged": exchanged("mlp.gate_proj", "mlp.up_proj"),
    "layers exchanged": layers_exchanged,
    "norm x1.1": norm(lambda gain: gain * 1.1),
    "norm ones": norm(np.ones_like),
    "rope theta 10000": config("rope_theta", 10000.0),
    "epsilon 1e-3": config("rms_norm_eps", 1e-3),
    "fold forgotten": forgotten_fold,
    "one NaN": not_finite,
    "one huge element": on_units(huge_element),
    "embedding 1.05": embedding_scaled,
    "scale missing": scale_missing,
    "a layer's scales zero": layer_scales_zero,
    "a layer in AWQ order": layer_in_awq_order,
}
PLAIN_ONLY = {"fold forgotten", "one huge element"}
FLOAT_ONLY = {"scale missing"}
"""Nobody reads an integer code without its scale."""
HIDDEN = ("scale missing", "scales zero", "a layer's scales zero", "layers exchanged", "a layer in AWQ order",
          "fold forgotten")  # fmt: skip
"""Those of docs/hidden_faults.md: below or near the noise of healthy INT4 at an endpoint."""


def possible(name: str, base: str) -> bool:
    """Whether a fault can be planted in a base."""
    if name in PLAIN_ONLY:
        return base in ("unquantised", "unknown scheme")
    return name not in FLOAT_ONLY or base.startswith("FP8")
