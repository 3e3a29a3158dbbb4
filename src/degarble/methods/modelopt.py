"""The config of NVIDIA's Model Optimizer, in its two homes.

    config.json            "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": […],
                            "config_groups": {…}, "kv_cache_scheme": {…}}
    hf_quant_config.json   {"producer": {…}, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
                            "kv_cache_quant_algo": "FP8", "exclude_modules": […]}}

`quant_algo` names the whole scheme; MIXED_PRECISION gives each module its own in `quantized_layers`. An algorithm that
is not in the table below leaves the scheme to `config_groups`, or unsaid.
Source: ModelOpt `export/quant_utils.py`, `export/convert_hf_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.compressed_tensors import args_scheme
from degarble.methods.fields import Fields
from degarble.methods.interface import Declaration, Method
from degarble.methods.per_module import rules_of

METHOD = "modelopt"
MIXED = "MIXED_PRECISION"


def _algo(
    kind: str,
    num_bits: int,
    strategy: str,
    group_size: int | None = None,
    activations: str | None = None,
    block_shape: tuple[int, int] | None = None,
) -> Scheme:
    return Scheme(
        method=METHOD,
        type=kind,
        num_bits=num_bits,
        strategy=strategy,
        group_size=group_size,
        block_shape=block_shape,
        symmetric=True,
        activations=activations,
    )


_NVFP4 = _algo("float", 4, "tensor_group", 16)
_MXFP4 = _algo("float", 4, "group", 32)
_FP8_BLOCK = _algo("float", 8, "block", block_shape=(128, 128))

ALGORITHMS: Mapping[str, Scheme] = {
    "FP8": _algo("float", 8, "tensor", activations="static"),
    "FP8_PER_CHANNEL_PER_TOKEN": _algo("float", 8, "channel", activations="dynamic"),
    "FP8_PB_WO": _FP8_BLOCK,
    "FP8_PB_REAL": _FP8_BLOCK,
    "MXFP8": _algo("float", 8, "group", 32, "dynamic"),
    "NVFP4": replace(_NVFP4, activations="static"),
    "NVFP4_AWQ": replace(_NVFP4, activations="static"),
    "W4A16_NVFP4": _NVFP4,
    "W4A8_NVFP4_FP8": replace(_NVFP4, activations="static"),
    "MXFP4": _MXFP4,
    "W4A16_MXFP4": _MXFP4,
    "W4A8_MXFP4_FP8": replace(_MXFP4, activations="static"),
    "W4A16_AWQ": _algo("int", 4, "group", 128),
    "W4A8_AWQ": _algo("int", 4, "group", 128, "static"),
    "W8A16": _algo("int", 8, "channel"),
    "W8A8_SQ_PER_CHANNEL": _algo("int", 8, "channel", activations="static"),
}
"""Group sizes are the tool's defaults; a written `group_size` replaces them."""

KV_ALGORITHMS: Mapping[str, Scheme] = {
    "FP8": _algo("float", 8, "tensor"),
    "INT8": _algo("int", 8, "tensor"),
    "NVFP4": _NVFP4,
    "NVFP4_AFFINE": _NVFP4,
}


class ModelOptMethod(Method):
    """`quant_method: modelopt`, or an `hf_quant_config.json`."""

    names: ClassVar[tuple[str, ...]] = ("modelopt", "modelopt_fp4", "modelopt_mixed")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare. The key of the declaration is that of the inner object where there is one."""
        outer = Fields(raw, file=file, key=key)
        inner = outer.inner("quantization")
        fields = outer if inner is None else inner
        algo = fields.text("quant_algo")
        layers = fields.objects("quantized_layers")
        schemes = {name: _scheme(layer, layer.text("quant_algo")) for name, layer in layers}
        return Declaration(
            method=METHOD,
            file=file,
            key=fields.key,
            raw=fields.raw,
            default=None if (algo or "").upper() == MIXED else _scheme(fields, algo),
            rules=rules_of(schemes, fields.path("quantized_layers")),
            skips=fields.skips("ignore", "exclude_modules"),
            kv_cache=_kv_cache(fields),
            version=_version(outer),
            sidecar=file != "config.json",
            ill_typed=outer.faults,
            notes={"quant_algo": algo, "pre_quant_scale": fields.boolean("pre_quant_scale")},
        )


def _scheme(fields: Fields, algo: str | None) -> Scheme | None:
    """By the algorithm's name, or else by the first group that says something about weights."""
    size = fields.group_size("group_size")
    known = ALGORITHMS.get((algo or "").upper())
    if known is None:
        return _from_groups(fields, algo)
    if size is not None and known.group_size is not None:
        known = replace(known, group_size=size) if size > 0 else replace(known, group_size=None, strategy="channel")
    return replace(known, format=algo, symmetric=not fields.boolean("has_zero_point"))


def _from_groups(fields: Fields, algo: str | None) -> Scheme | None:
    for _, group in fields.objects("config_groups"):
        weights, inputs = group.inner("weights"), group.inner("input_activations")
        if weights is not None:
            dynamic = inputs is not None and bool(inputs.boolean("dynamic"))
            activations = None if inputs is None else "dynamic" if dynamic else "static"
            said = args_scheme(weights, METHOD, label=algo, activations=activations)
            return said if weights.raw.get("strategy") or said.group_size else replace(said, strategy=None)
    return None


def _kv_cache(fields: Fields) -> Scheme | None:
    """`kv_cache_quant_algo`, or the object that config.json has instead."""
    algo, scheme = fields.text("kv_cache_quant_algo"), fields.inner("kv_cache_scheme")
    if algo is not None:
        known = KV_ALGORITHMS.get(algo.upper())
        return replace(known, format=algo) if known is not None else Scheme(method=METHOD, format=algo)
    return args_scheme(scheme, METHOD) if scheme is not None else None


def _version(outer: Fields) -> str | None:
    producer = outer.inner("producer")
    return producer.text("version") if producer is not None else None
