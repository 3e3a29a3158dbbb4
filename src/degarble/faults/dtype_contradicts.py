"""Plants CFG108."""

from __future__ import annotations

from degarble.checks.config.dtype_contradicts import KEYS, SPELLINGS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location

CHOICES = ("bfloat16", "float16", "float32")


@fault("CFG108")
def dtype_contradicts(patient: Patient) -> Location:
    """Declare another floating-point type than the weights are stored in."""
    config = patient.evidence.find("model_config")
    if config is None or config.gguf is not None or config.text is not config.values:
        raise NotApplicable("no plain config.json")
    written = [key for key in KEYS if key in config.values]
    heads = patient.modules(lambda m: m.canonical == "model.embed_tokens" and m.form.format == "plain")
    stored = heads[0].any_part.dtype
    if not written or any(SPELLINGS.get(str(config.values[key])) != stored for key in written):
        raise NotApplicable("declares nothing, or contradicts itself already")
    other = patient.pick(choice for choice in CHOICES if SPELLINGS[choice] != stored)
    for key in written:
        patient.workspace.json("config.json")[key] = other
    return Location(file="config.json", key=written[0])


@fault("CFG108")
def dtype_spellings_contradict(patient: Patient) -> Location:
    """Leave the old spelling with another value beside the new one."""
    config = patient.evidence.find("model_config")
    if config is None or config.gguf is not None or SPELLINGS.get(str(config.values.get("dtype"))) is None:
        raise NotApplicable("no dtype")
    other = patient.pick(c for c in CHOICES if SPELLINGS[c] != SPELLINGS[str(config.values["dtype"])])
    patient.workspace.json("config.json")["torch_dtype"] = other
    return Location(file="config.json", key="torch_dtype")
