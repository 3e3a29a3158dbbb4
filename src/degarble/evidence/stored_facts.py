"""What the stored modules tell about a checkpoint as a whole, for known issues and kernel limits."""

from __future__ import annotations

import re
from collections.abc import Mapping

from degarble.architectures.interface import Architecture
from degarble.checkpoint.interface import num_elements
from degarble.evidence.modules import Modules
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration

TAGS: Mapping[str, str] = {
    "gptq": "gptq",
    "awq": "awq",
    "awq_gemv": "awq",
    "compressed_pack": "compressed-tensors",
    "fp8": "fp8",
    "fp8_block": "fp8-block",
    "compressed_fp8_block": "fp8-block",
    "nvfp4": "nvfp4",
    "modelopt_nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "mxfp4_experts": "mxfp4",
    "bitsandbytes_4bit": "bitsandbytes",
    "bitsandbytes_int8": "bitsandbytes",
}
"""Format file -> the name by which engine tables call it."""

SPLIT_EXPERT = re.compile(r"blk\.(?P<layer>\d+)\.(?P<kind>ffn_(gate|down|up))\.\d+\Z")
"""How GGUF named experts before it stored those of a layer as one tensor."""

FUSED_LEAVES = frozenset({"qkv_proj", "gate_up_proj", "query_key_value", "W_pack", "Wqkv"})
SCALAR_ROLES = ("global_scale", "input_scale")


def format_tag(module: StoredModule) -> str | None:
    """The name that the tables of `data/engines` use: `gptq`, `fp8-block`, `gguf:Q4_K`, …"""
    if module.payload is not None and module.payload.dtype.startswith("GGUF:"):
        return f"gguf:{module.payload.dtype.removeprefix('GGUF:')}"
    return TAGS.get(module.form.format)


def stored_facts(
    modules: Modules,
    declaration: Declaration | None,
    architecture: Architecture | None,
) -> dict[str, object]:
    """Facts about formats, widths, shapes, experts, head, router and MTP layers."""
    survey = _Survey(architecture)
    for example, members in modules.classes():
        survey.visit(example, members)
    facts = survey.facts()
    tags = set(survey.tags)
    if declaration is not None:
        tags.add(declaration.method)
    if any(tag.startswith("gguf:") for tag in tags):
        tags.add("gguf")
    facts["formats"] = frozenset(tags)
    examples = [info.name for example, _ in modules.classes() for info in example.parts.values()]
    facts["experts_packed_in_3d"] = any(name.endswith("_proj_packed") and ".experts." in name for name in examples)
    return facts


class _Survey:
    """Collects facts class by class."""

    def __init__(self, architecture: Architecture | None) -> None:
        self._mtp_layers = frozenset(architecture.mtp_layers) if architecture is not None else frozenset[int]()
        self.tags: set[str] = set()
        self._sets: dict[str, set[object]] = {}
        self._flags: dict[str, bool] = {}
        self._expert_roles: dict[tuple[str, int | None], set[frozenset[str]]] = {}
        self._split_types: dict[tuple[str, str], set[str]] = {}

    def visit(self, example: StoredModule, members: list[StoredModule]) -> None:
        """Take in one class of equal modules."""
        form = example.form
        if example.kind in ("linear", "router", "head"):
            self._flag("quantized" if form.is_quantized else "plain", True)
        if example.kind == "linear" and not form.is_quantized and form.format == "plain":
            self._flag("plain_linear", True)
        if example.kind == "router":
            self._flag("router_quantized", form.is_quantized)
        if example.kind == "head":
            self._flag("lm_head_quantized", form.is_quantized)
        if example.template.endswith("q_proj") and "bias" in form.roles:
            self._flag("attention_bias", True)
        if example.expert is not None or ".experts." in example.template:
            self._experts(example, members)
        if example.kind == "linear" and any(module.layer in self._mtp_layers for module in members):
            self._flag("mtp", True)
            self._flag("mtp_quantized", form.is_quantized)
        for module in members if form.format == "gguf" else ():
            self._split_expert(module)
        if form.is_quantized and example.kind != "unknown":
            self._quantized(example)

    def facts(self) -> dict[str, object]:
        """What the whole checkpoint amounts to."""
        found: dict[str, object] = {name: frozenset(values) for name, values in self._sets.items()}
        for name in ("router_quantized", "lm_head_quantized", "mtp_quantized"):
            if name in self._flags:
                found[name] = self._flags[name]
        for name in ("attention_bias", "mtp", "moe", "fused_on_disk"):
            found[name] = self._flags.get(name, False)
        found["mixed_precision"] = self._flags.get("quantized", False) and self._flags.get("plain_linear", False)
        found["uneven_experts"] = any(len(roles) > 1 for roles in self._expert_roles.values())
        found["mixed_expert_types"] = any(len(types) > 1 for types in self._split_types.values())
        return found

    def _experts(self, example: StoredModule, members: list[StoredModule]) -> None:
        self._flag("moe", True)
        self._add("expert_projections", example.template.rpartition(".")[2])
        for layer in {module.layer for module in members}:
            roles = frozenset(example.form.roles)
            self._expert_roles.setdefault((example.template, layer), set()).add(roles)

    def _split_expert(self, module: StoredModule) -> None:
        split = SPLIT_EXPERT.match(module.name)
        if split is not None:
            self._flag("moe", True)
            self._split_types.setdefault((split["layer"], split["kind"]), set()).add(module.any_part.dtype)

    def _quantized(self, example: StoredModule) -> None:
        tag, scheme, shape = format_tag(example), example.form.scheme, example.form.shape
        if tag is not None:
            self.tags.add(tag)
        if scheme is not None and scheme.num_bits:
            self._add("num_bits", scheme.num_bits)
            self._add("group_size", scheme.group_size or -1)
        if shape is not None and len(shape) >= 2:
            self._add("out_features", shape[-2])
            self._add("in_features", shape[-1])
        scale = example.part("scale")
        if scale is not None:
            self._add("scale_dtype", "e8m0" if scale.dtype == "F8_E8M0" else scale.dtype.lower())
        zeros = example.part("zero_point")
        if zeros is not None and scale is not None and example.form.format in ("gptq", "awq", "compressed_pack"):
            self._add("zero_points_packed", zeros.shape != scale.shape)
        if example.template.rpartition(".")[2] in FUSED_LEAVES and _has_one_number(example):
            self._flag("fused_on_disk", True)

    def _flag(self, name: str, value: bool) -> None:
        self._flags[name] = self._flags.get(name, False) or value

    def _add(self, name: str, value: object) -> None:
        self._sets.setdefault(name, set()).add(value)


def _has_one_number(module: StoredModule) -> bool:
    roles = [*SCALAR_ROLES, "scale"] if module.form.scheme and module.form.scheme.strategy == "tensor" else SCALAR_ROLES
    return any((part := module.part(role)) is not None and num_elements(part.shape) == 1 for role in roles)
