"""Plants QNT109."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.declared_form import DeclaredForms, Promise, is_mtp
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.scale_missing import mapped_modules
from degarble.faults.skip_list_edit import config_object, declaration_of
from degarble.finding import Location
from degarble.formats.detect import formats
from degarble.formats.interface import PAYLOAD, StoredModule


@fault("QNT109")
def stored_plain_but_declared_quantized(patient: Patient) -> Location:
    """Replace the codes of one linear by their plain values; the config stays as it is."""
    module = patient.pick(_promised(patient))
    return store_plain(patient, module)


@fault("QNT109")
def stored_plain_in_all_layers(patient: Patient) -> Location:
    """Replace the codes of one projection by plain values in every layer."""
    module = patient.pick(_promised(patient))
    if patient.evidence.get("declaration").sidecar:
        raise NotApplicable("QNT103 names a module of the healthy copy, and it may be gone then")
    for peer in _promised(patient):
        if peer.template == module.template and peer.expert == module.expert and peer is not module:
            store_plain(patient, peer)
    return store_plain(patient, module)


@fault("QNT109")
def stored_plain_with_scales_left(patient: Patient) -> Location:
    """Replace the codes of one linear by plain values and leave its scales beside them."""
    module = patient.pick(m for m in _promised(patient) if not m.form.roles[PAYLOAD].startswith("_"))
    plain = plain_suffix()
    if any(
        "." in suffix or suffix == plain for role, suffix in module.form.roles.items() if role not in (PAYLOAD, "bias")
    ):
        raise NotApplicable("the companions' names hang under the payload's")
    return store_plain(patient, module, keep_companions=True)


@fault("QNT109")
def head_not_skipped(patient: Patient) -> Location:
    """Take the plain output head off the skip list, where the method spares nothing by itself."""
    forms: DeclaredForms | None = patient.evidence.find("declared_forms")
    architecture = patient.evidence.find("architecture")
    if forms is None or forms.declaration.implicit_plain or architecture is None or architecture.tied:
        raise NotApplicable("the head is tied, or spared without being listed")
    head = patient.pick(
        patient.modules(lambda m: m.kind == "head" and m.canonical == "lm_head" and m.form.format == "plain")
    )
    drop_skip_entries(patient, lambda entry: "lm_head" in entry)
    return Location(file=head.any_part.file, tensor=head.any_part.name, module=head.name)


@fault("QNT109")
def plain_model_declared_quantized(patient: Patient) -> Location:
    """Give a plain model a quantisation config that nothing in its weights bears out."""
    if patient.evidence.find("declaration") is not None or patient.evidence.get("is_gguf"):
        raise NotApplicable("declares something already, or cannot")
    if "config.json" not in patient.evidence.get("files") or patient.evidence.find("architecture") is None:
        raise NotApplicable("no config.json of a known family")
    linears = patient.modules(lambda m: m.kind == "linear" and m.form.format == "plain")
    if patient.modules(lambda m: m.kind == "linear") != linears:
        raise NotApplicable("some linears are quantised")
    patient.workspace.json("config.json")["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    return Location(file="config.json", key="quantization_config", module=patient.pick(linears).name)


def _promised(patient: Patient) -> list[StoredModule]:
    forms: DeclaredForms | None = patient.evidence.find("declared_forms")
    if forms is None:
        raise NotApplicable("nothing is declared")
    architecture = patient.evidence.find("architecture")

    def suitable(module: StoredModule) -> bool:
        is_linear = module.kind == "linear" and module.form.is_quantized and module.payload is not None
        return is_linear and not is_mtp(module, architecture) and forms.of(module) is Promise.QUANTIZED

    return mapped_modules(patient, suitable)


def store_plain(patient: Patient, module: StoredModule, *, keep_companions: bool = False) -> Location:
    """Store a module's values plain under `weight`, in the dtype of the model; codes and companions go."""
    try:
        values = _as_model_dtype(patient, module.dequantize())
    except (NotImplementedError, ValueError, KeyError) as error:
        raise NotApplicable(f"{module.name} cannot be dequantised: {error}") from None
    file, name = module.any_part.file, f"{module.name}.{plain_suffix()}"
    for role, suffix in module.form.roles.items():
        if role == PAYLOAD or not (keep_companions or role == "bias"):
            patient.workspace.drop(module.parts[suffix].name)
    patient.workspace.add(file, name, values)
    return Location(file=file, tensor=name, module=module.name, layer=module.layer, expert=module.expert)


def plain_suffix() -> str:
    """Where every loader looks for plain values."""
    return formats()["plain"].suffix_of(PAYLOAD)


def _as_model_dtype(patient: Patient, values: Array) -> Array:
    config = patient.evidence.find("model_config")
    declared = config.values.get("dtype", config.values.get("torch_dtype")) if config is not None else None
    dtype = {"float16": np.float16, "float32": np.float32}.get(str(declared), ml_dtypes.bfloat16)
    return np.ascontiguousarray(values.astype(dtype))


def drop_skip_entries(patient: Patient, unwanted: Callable[[str], bool]) -> None:
    """Remove entries from every skip list. Raises NotApplicable where no list has one."""
    declaration = declaration_of(patient)
    config, found = config_object(patient, declaration), False
    for skips in declaration.skips:
        key = skips.key.rpartition(".")[2]
        entries = config.get(key)
        if not isinstance(entries, list):
            continue
        kept = [entry for entry in entries if not (isinstance(entry, str) and unwanted(entry))]
        found = found or len(kept) < len(entries)
        config[key] = kept
    if not found:
        raise NotApplicable("no skip list names it")
