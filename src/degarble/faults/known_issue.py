"""Plants ENG703."""

from __future__ import annotations

from degarble.evidence.store import Settings
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import config_object, declaration_of, quantized_linears
from degarble.finding import Location


@fault("ENG703", settings=Settings(engine="vllm"))
def known_issue(patient: Patient) -> Location:
    """Override a part of a fused layer by its own scheme: sound, but an engine asks for the fused name."""
    declaration = declaration_of(patient)
    if declaration.method != "gptq" or declaration.default is None or declaration.default.group_size is None:
        raise NotApplicable("overrides of this kind belong to GPTQ")
    module = patient.pick(quantized_linears(patient, "q_proj", "k_proj", "v_proj"))
    config = config_object(patient, declaration)
    override = {"bits": declaration.default.num_bits, "group_size": declaration.default.group_size}
    config["dynamic"] = {**(config.get("dynamic") or {}), rf"+:.*{module.name.replace('.', chr(92) + '.')}$": override}
    return Location(file=declaration.file, key=declaration.key)
