"""Plants ENG702."""

from __future__ import annotations

from degarble.evidence.declared_key import declared_key
from degarble.evidence.store import Settings
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import config_object, declaration_of, quantized_linears
from degarble.finding import Location


@fault("ENG702", settings=Settings(tensor_parallel=2))
def act_order_under_tp(patient: Patient) -> Location:
    """Declare activation order in a checkpoint to be served on two ranks."""
    declaration = declaration_of(patient)
    module = patient.pick(m for m in quantized_linears(patient, "o_proj", "down_proj") if m.part("g_idx") is not None)
    key = declared_key(declaration, module.name, "act_order")
    config, name = config_object(patient, declaration), key.rpartition(".")[2]
    if config.get(name) is not False:
        raise NotApplicable("activation order is declared already, or not at all")
    config[name] = True
    return Location(file=declaration.file, key=key, module=module.name)
