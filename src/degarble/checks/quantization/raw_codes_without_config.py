"""QNT103: weights are codes, and no quantisation config says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checkpoint.json_file import JsonFile
from degarble.evidence.declaration import quantization_objects
from degarble.evidence.declared_form import DeclaredForms, Promise
from degarble.evidence.modules import Modules
from degarble.evidence.store import Coverage
from degarble.finding import Confidence, Finding, Fix, Location, Scalar, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

CODE_DTYPES = frozenset(
    {"U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4", "I32", "U32", "I16", "U16"}
)
"""Of a matrix in a weight's place: one byte a value, or several values packed into one word."""

Class = tuple[StoredModule, list[StoredModule]]
"""An example and all modules with equal headers."""

WEIGHT_KINDS = frozenset({"linear", "router", "head", "embedding"})
CONTAINER_CAUSES = ("CKP101", "CKP105")
OWN_CONVENTIONS = frozenset({"hf_quant_config.json", "quant_model_description.json"})
"""ModelOpt's and Ascend's readers open these files; they are no sidecars that a loader would overlook."""


@check("QNT103", symptom_of=CONTAINER_CAUSES)
def raw_codes_without_config(
    modules: Modules, json_files: Mapping[str, JsonFile], is_gguf: bool, source_kind: str, coverage: Coverage
) -> Iterator[Finding]:
    """Weights are stored as codes, and the config that a loader reads does not declare any quantisation.

    ## What it looks for
    One-byte or packed payloads in the place of weights, while config.json has no `quantization_config` (or its
    relatives `quantization` and `compression_config`), or has one that speaks of other modules only. A config in a file
    of its own, such as quantize_config.json or quanto_qmap.json, is a warning: loaders that read config.json alone see
    raw codes. hf_quant_config.json (ModelOpt) and quant_model_description.json (Ascend) are
    conventions of their own, which their readers know.

    ## Why output turns to garbage
    A loader without a quantisation config builds plain layers. Raw FP8 codes are then cast and used as weights of up to
    448, packed integers have the wrong shape, and scales are dropped as unexpected keys.

    ## What you will see
    Shape errors for packed formats. For one-byte formats the model loads and answers with token soup; perplexity in the
    millions.

    ## How to tell it from its look-alikes
    A plain checkpoint is silent. GGUF files carry the type of every tensor and need no config. A single `.safetensors`
    file is judged without its folder, so nothing is said about a config that may lie beside it. A payload that the
    config does declare, but in another width or layout, is QNT104. 8-bit floats without any scale may be plain values
    that were cast for storage: a warning.

    ## How to confirm
    Open config.json and look for `quantization_config`; compare with the config in the repository the model came from.

    ## How to repair it
    Restore the original config.json. A config can be written from what the headers prove (method, bits, group size),
    but conventions such as the zero-point offset do not show in headers, so that is not safe unattended.

    ## References
    unslothai/unsloth#6978, vllm-project/vllm#44628, modular/modular#6600
    """
    if is_gguf or source_kind == "safetensors":
        return
    coded = [(example, members) for example, members in modules.classes() if holds_codes(example)]
    configs = [file for file, *_ in quantization_objects(json_files)]
    if configs:
        _note_unjudged(coded, coverage)
    is_declared = "config.json" in configs or not OWN_CONVENTIONS.isdisjoint(configs) or _is_mistral(json_files)
    if not coded or is_declared or _is_unreadable(json_files):
        return
    yield _beside_sidecar(coded, configs[0]) if configs else _undeclared(coded, "config.json" in json_files)


@check("QNT103", symptom_of=(*CONTAINER_CAUSES, "CFG110"))
def raw_codes_outside_config(modules: Modules, declared_forms: DeclaredForms) -> Iterator[Finding]:
    """Codes in modules that no rule of an existing config speaks of, and that no list skips."""
    declaration = declared_forms.declaration
    if declaration.default is not None and all(rule.scheme is not None for rule in declaration.rules):
        return
    for example, members in modules.classes():
        if not holds_codes(example) or not example.form.is_quantized or example.canonical is None:
            continue
        for module in members:
            if declared_forms.of(module) is Promise.UNNAMED and not _is_listed(module, declared_forms):
                yield Finding(
                    location=module.place(),
                    message=f"{module.any_part.name} holds {module.form.format} codes ({module.any_part.dtype}), and "
                    f"no rule of {declaration.file}: {declaration.key} gives {module.name} a scheme",
                    measured={"dtype": module.any_part.dtype},
                    bound={"schemes_for_module": 1},
                    fold=f"unnamed {module.form.format}",
                    fix=Fix(id="write-quantization-config", safe=False),
                )


def holds_codes(module: StoredModule) -> bool:
    """Whether the payload is codes: by a known format, or by its dtype in the place of a weight."""
    if module.form.is_quantized:
        return module.payload is not None
    payload = module.payload
    if module.form.format != "unknown" or payload is None or module.kind not in WEIGHT_KINDS:
        return False
    return payload.dtype in CODE_DTYPES and len(payload.shape) >= 2


def _note_unjudged(coded: list[Class], coverage: Coverage) -> None:
    """Codes that no format file reads: declared or not, they cannot be judged."""
    unknown = [(example, members) for example, members in coded if example.form.format == "unknown"]
    if unknown:
        number = sum(len(members) for _, members in unknown)
        payload = unknown[0][0].any_part
        coverage.add(
            f"{number} modules such as {unknown[0][0].name}",
            f"unknown weight format: {payload.name} is {payload.dtype}",
        )


def _is_mistral(json_files: Mapping[str, JsonFile]) -> bool:
    """Mistral's own folders declare quantisation in params.json, which their loaders read."""
    file = json_files.get("params.json")
    return file is not None and isinstance(file.value, dict) and isinstance(file.value.get("quantization"), dict)


def _is_unreadable(json_files: Mapping[str, JsonFile]) -> bool:
    """A broken config.json may declare anything: CFG101 speaks of it. Adapters declare nothing of their base."""
    file = json_files.get("config.json")
    return "adapter_config.json" in json_files or (file is not None and not isinstance(file.value, dict))


def _is_listed(module: StoredModule, declared_forms: DeclaredForms) -> bool:
    """A module that the config names as plain is the skip list's business (QNT107)."""
    rules = declared_forms.declaration.rules
    return declared_forms.declaration.is_implicitly_plain(module.name) or any(
        rule.scheme is None and rule.matches(module.name) for rule in rules
    )


def _beside_sidecar(coded: list[Class], sidecar: str) -> Finding:
    """Its readers exist, so this names one example and explains nothing else."""
    example = coded[0][0]
    return Finding(
        location=Location(file=sidecar),
        message=f"{_number(coded)} modules hold codes, such as {_described(example)}, and their config is in "
        f"{sidecar}, which loaders that read config.json alone never open: they see raw codes",
        severity=Severity.WARNING,
        measured={"modules_with_codes": _number(coded), "formats": _formats(coded), "config": sidecar},
        bound={"config": "config.json"},
        fix=Fix(id="write-quantization-config", safe=False),
    )


def _undeclared(coded: list[Class], has_config: bool) -> Finding:
    """Every module with codes is a place of this finding, so that it explains what else goes wrong there."""
    example = coded[0][0]
    is_cast = all(set(m.form.roles) <= {"payload", "bias"} and m.any_part.dtype.startswith("F8") for m, _ in coded)
    places = tuple(_place(module) for _, members in coded for module in members)
    where = "config.json has no quantization_config" if has_config else "there is no config.json beside them"
    return Finding(
        location=_place(example),
        places=places if len(places) > 1 else (),
        message=f"{_number(coded)} modules hold codes, such as {_described(example)}, and {where}",
        severity=Severity.WARNING if is_cast or not has_config else None,
        confidence=Confidence.LIKELY if is_cast or not has_config else None,
        measured={"modules_with_codes": _number(coded), "formats": _formats(coded)},
        bound={"modules_with_codes": 0},
        fix=Fix(id="write-quantization-config", safe=False),
    )


def _number(coded: list[Class]) -> int:
    return sum(len(members) for _, members in coded)


def _described(module: StoredModule) -> str:
    payload = module.any_part
    return f"{payload.name} ({payload.dtype} {list(payload.shape)})"


def _place(module: StoredModule) -> Location:
    return module.place(file="config.json", key="quantization_config")


def _formats(coded: list[Class]) -> list[Scalar]:
    return [*sorted({module.form.format for module, _ in coded})]
