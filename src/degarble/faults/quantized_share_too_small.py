"""Plants QNT115."""

from __future__ import annotations

import math
from collections.abc import Callable

from degarble.evidence.skips import Skips
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import add_entries, full_entry, skips_of
from degarble.faults.stored_plain_but_declared_quantized import store_plain
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT115")
def quantized_share_too_small(patient: Patient) -> Location:
    """Put every MLP (experts included) on the skip list, and store it plain."""
    return _exempt(patient, lambda module: ".mlp." in module.name or ".block_sparse_moe." in module.name)


@fault("QNT115")
def only_one_layer_quantized(patient: Patient) -> Location:
    """Put all linears but those of the last layer's attention on the skip list, and store them plain."""
    last = max(module.layer or 0 for module in patient.modules())
    return _exempt(patient, lambda module: module.layer != last or ".self_attn." not in module.name)


def _exempt(patient: Patient, chosen: Callable[[StoredModule], bool]) -> Location:
    skips = skips_of(patient)
    if skips.declaration.method == "bitsandbytes":
        raise NotApplicable("plain layers in a 4-bit checkpoint are a known issue of their own (ENG703)")
    linears = patient.modules(lambda m: m.kind == "linear" and m.form.is_quantized and m.form.shape is not None)
    exempt = [module for module in linears if chosen(module)]
    if not exempt or 2 * _parameters(exempt) <= _parameters(linears):
        raise NotApplicable("they are not most of the model")
    for module in exempt:
        store_plain(patient, module)
    return add_entries(patient, skips, *dict.fromkeys(_entry(skips, module) for module in exempt))


def _entry(skips: Skips, module: StoredModule) -> str:
    """ModelOpt's readers ask for the stack of experts, never for one of them."""
    stack, mark, _ = module.name.partition(".experts.")
    if mark and skips.declaration.method.startswith("modelopt"):
        return f"{stack}.experts*"
    return full_entry(skips, module.name)


def _parameters(modules: list[StoredModule]) -> int:
    return sum(math.prod(module.form.shape or ()) for module in modules)
