"""QNT117: scales of the KV cache for some layers only, or for keys without values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from degarble.architectures.canonical import template_of
from degarble.architectures.interface import Architecture
from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.declared_form import is_mtp
from degarble.evidence.modules import Modules
from degarble.evidence.stray_kv_scales import KV_LEAVES
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.registry import check

TWINS: Mapping[str, str] = {"k_scale": "v_scale", "v_scale": "k_scale"}
PROJECTIONS: Mapping[str, str] = {"k_scale": "k_proj", "v_scale": "v_proj"}
"""ModelOpt hangs each scale under the projection it belongs to."""

KEYS = ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype")
EXPLAINED_BY = ("CKP101", "CKP102", "CKP103", "CKP105", "CFG103", "CFG104", "CFG110", "QNT121")


class KvScale(msgspec.Struct, frozen=True):
    """One stored scale: under which attention (or projection) it hangs."""

    info: TensorInfo
    owner: str
    kind: str
    template: str
    layer: int


@check("QNT117", symptom_of=EXPLAINED_BY)
def kv_scales_incomplete(
    kv_scales: Mapping[str, str],
    tensors: Mapping[str, TensorInfo],
    modules: Modules,
    declaration: Declaration | None = None,
    architecture: Architecture | None = None,
) -> Iterator[Finding]:
    """Scales of the KV cache are stored for some layers only, or for keys without values.

    ## What it looks for
    Stored key and value scales under attention modules (or under their projections, as ModelOpt writes them). Either
    every layer with such an attention has both, or none has any. A config that declares a static KV-cache scheme while
    no layer has a scale is a warning: engines then use 1.0.

    ## Why output turns to garbage
    An engine takes a missing scale as 1.0, or stops on an assertion when only one of the pair is there. Keys that were
    calibrated for another scale are clipped or lose their precision in exactly those layers.

    ## What you will see
    A log line about a scaling factor of 1.0, answers that get worse with length, or `k_scale > 0` failing at load. With
    an unquantised KV cache nothing shows.

    ## How to tell it from its look-alikes
    Scales of exactly 1.0 may be real. A single `kv_scale` for both is the old form, complete in itself. Latent
    attention (MLA) caches one vector and needs one scale. Layers without softmax attention and prediction layers need
    none. Wrong values are WGT224; scales under names that no engine reads are QNT121.

    ## How to confirm
    Serve once with an unquantised KV cache (`--kv-cache-dtype auto`): if the fault goes, the scales are the reason.

    ## How to repair it
    Calibrate the KV cache again. Dropping all scales falls back to 1.0 everywhere, which e5m2 and most e4m3 caches
    bear; that is a change of quality and not safe unattended.

    ## References
    sgl-project/sglang#20705, sgl-project/sglang#31224, vllm-project/vllm#46264, sgl-project/sglang#27131
    """
    stored = [scale for name, kind in kv_scales.items() if (scale := _placed(tensors[name], kind)) is not None]
    by_place = {(scale.template, scale.kind, scale.layer): scale for scale in stored}
    has_single = {(scale.template, scale.layer) for scale in stored if scale.kind == "kv_scale"}
    for template, kind, layers, example in _series(stored, architecture):
        owners = _owners(template, modules, architecture)
        for layer in sorted((layers | set(owners)) - _present(by_place, template, kind)):
            if (template, layer) not in has_single:
                yield _missing(example, kind, layer, owners.get(layer), len(_present(by_place, template, kind)))
    if not stored and declaration is not None:
        yield from _declared_without_any(declaration)


def _placed(info: TensorInfo, kind: str) -> KvScale | None:
    """The owner, and its name with a placeholder for the layer; None where no layer is named."""
    owner = info.name.rpartition(".")[0]
    template, layer, _ = template_of(owner)
    return KvScale(info, owner, kind, template, layer) if layer is not None else None


def _present(by_place: Mapping[tuple[str, str, int], KvScale], template: str, kind: str) -> set[int]:
    return {layer for owner, found, layer in by_place if owner == template and found == kind}


def _series(stored: list[KvScale], architecture: Architecture | None) -> Iterator[tuple[str, str, set[int], KvScale]]:
    """(owner template, kind, layers that must have it for sure, an example) of each scale that ought to be there."""
    seen: dict[tuple[str, str], tuple[set[int], KvScale]] = {}
    kinds = {scale.kind for scale in stored}
    is_latent = architecture is not None and "kv_lora_rank" in architecture.config
    for scale in stored:
        if scale.kind not in (*TWINS, "kv_scale"):
            continue
        seen.setdefault((scale.template, scale.kind), (set(), scale))[0].add(scale.layer)
        twin = TWINS.get(scale.kind)
        if twin is None or (is_latent and twin not in kinds):
            continue
        template = _twin_template(scale, twin)
        seen.setdefault((template, twin), (set(), _renamed(scale, twin)))[0].add(scale.layer)
    for (template, kind), (layers, example) in seen.items():
        yield template, kind, layers, example


def _twin_template(scale: KvScale, twin: str) -> str:
    own = PROJECTIONS[scale.kind]
    return (
        scale.template.removesuffix(own) + PROJECTIONS[twin] if scale.template.endswith("." + own) else scale.template
    )


def _renamed(scale: KvScale, twin: str) -> KvScale:
    own = PROJECTIONS[scale.kind]
    owner = scale.owner.removesuffix(own) + PROJECTIONS[twin] if scale.owner.endswith("." + own) else scale.owner
    return KvScale(scale.info, owner, twin, _twin_template(scale, twin), scale.layer)


def _owners(template: str, modules: Modules, architecture: Architecture | None) -> dict[int, StoredModule]:
    """Layer -> a stored projection of keys or values under the scale's owner, so that its layer must have the scale.

    Some exporters put an object of the engine between attention and scale (`self_attn.attn.k_scale`); layers that share
    the cache of another have no such projection.
    """
    found: dict[int, StoredModule] = {}
    for owner in (template, template.rpartition(".")[0]):
        for example, members in modules.classes():
            own = template_of(example.name)[0]
            if own.rpartition(".")[2] in KV_LEAVES and (own == owner or own.startswith(owner + ".")):
                for module in members:
                    if module.layer is not None and not is_mtp(module, architecture):
                        found.setdefault(module.layer, module)
        if found:
            break
    return found


def _missing(example: KvScale, kind: str, layer: int, owner: StoredModule | None, present: int) -> Finding:
    """Points at the name the scale should have."""
    module = example.template.replace("{layer}", str(layer))
    name = f"{module}.{kind}"
    return Finding(
        location=Location(
            file=owner.any_part.file if owner is not None else example.info.file,
            tensor=name,
            module=module,
            layer=layer,
        ),
        message=f"{name} is missing: layer {layer} has no {kind}, {present} other layers have one; engines take 1.0 "
        "or stop",
        measured={"missing": name, "layers_with_it": present},
        bound={"layers_without_it": 0},
        fold="incomplete",
        fix=Fix(id="calibrate-kv-cache", safe=False),
    )


def _declared_without_any(declaration: Declaration) -> Iterator[Finding]:
    scheme = declaration.kv_cache
    if scheme is None or scheme.activations == "dynamic" or _is_dynamic(declaration):
        return
    key = _key(declaration)
    yield Finding(
        location=Location(file=declaration.file, key=key),
        message=f"{key} declares a quantised KV cache ({scheme.label}), and no layer has a key or value scale: engines "
        "use 1.0, which most models bear",
        severity=Severity.WARNING,
        measured={"kv_scales": 0},
        bound={"kv_scales_min": 1},
        fix=Fix(id="calibrate-kv-cache", safe=False),
    )


def _is_dynamic(declaration: Declaration) -> bool:
    """Scales that the engine works out while it serves are stored nowhere."""
    written = declaration.raw.get(KEYS[0])
    return isinstance(written, dict) and written.get("dynamic") is True


def _key(declaration: Declaration) -> str:
    base = f"{declaration.key}." if declaration.key else ""
    nested = declaration.raw.get("quantization")
    for key in KEYS:
        if declaration.raw.get(key) is not None:
            return base + key
        if isinstance(nested, dict) and nested.get(key) is not None:
            return f"{base}quantization.{key}"
    return declaration.key
