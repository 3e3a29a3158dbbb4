"""Plants NUM301."""

from __future__ import annotations

from degarble.evidence.store import Settings
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.norm_gain_unsafe_in_half import scale_norms
from degarble.finding import Location


@fault("NUM301", settings=Settings(dtype="float16"))
def trained_bf16_served_fp16(patient: Patient) -> Location:
    """Take the norms of a bf16 model to an eighth of fp16's range, to be served in fp16."""
    config = patient.evidence.find("model_config")
    if config is None or config.gguf is not None:
        raise NotApplicable("no config.json")
    if not any(str(config.text.get(key)) == "bfloat16" for key in ("dtype", "torch_dtype")):
        raise NotApplicable("not declared as bfloat16")
    return scale_norms(patient, 6_000.0)


@fault("NUM301", settings=Settings(dtype="float16"))
def bf16_declared_served_fp16(patient: Patient) -> Location:
    """Declare bfloat16 where the config said something else, to be served in fp16."""
    config = patient.evidence.find("model_config")
    if config is None or config.gguf is not None or config.text is not config.values:
        raise NotApplicable("no plain config.json")
    keys = [key for key in ("dtype", "torch_dtype") if key in config.values]
    stored = {m.any_part.dtype for m in patient.modules(lambda m: m.form.format == "plain" and m.kind == "embedding")}
    if not keys or any(config.values[key] == "bfloat16" for key in keys) or stored != {"BF16"}:
        raise NotApplicable("declared as bfloat16 already, or stored otherwise")
    for key in keys:
        patient.workspace.json("config.json")[key] = "bfloat16"
    return Location(file="config.json", key=keys[0])
