"""Plants QNT120."""

from __future__ import annotations

from degarble.evidence.declared_form import DeclaredForms, Promise, is_mtp
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import add_entries, full_entry, skips_of
from degarble.faults.stored_plain_but_declared_quantized import store_plain
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT120")
def mtp_form_differs(patient: Patient) -> Location:
    """Store one linear of a prediction layer plain; the config makes it quantised."""
    module = patient.pick(_predicting(patient, Promise.QUANTIZED))
    return store_plain(patient, module)


@fault("QNT120")
def mtp_layer_stored_plain(patient: Patient) -> Location:
    """Store all linears of the prediction layers plain, as a copy from the original would leave them."""
    modules = _predicting(patient, Promise.QUANTIZED)
    return patient.pick([store_plain(patient, module) for module in modules])


@fault("QNT120")
def mtp_layer_on_skip_list(patient: Patient) -> Location:
    """Put the prediction layers' linears on the skip list; they stay quantised."""
    modules = _predicting(patient, Promise.QUANTIZED)
    skips = skips_of(patient)
    add_entries(patient, skips, *(full_entry(skips, module.name) for module in modules))
    return patient.pick(modules).place()


def _predicting(patient: Patient, promise: Promise) -> list[StoredModule]:
    architecture = patient.evidence.find("architecture")
    forms: DeclaredForms | None = patient.evidence.find("declared_forms")
    if architecture is None or forms is None:
        raise NotApplicable("no known family with a quantisation config")

    def suitable(module: StoredModule) -> bool:
        is_linear = module.kind == "linear" and module.form.is_quantized
        return is_linear and is_mtp(module, architecture) and forms.of(module) is promise

    return patient.modules(suitable)
