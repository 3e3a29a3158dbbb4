"""Plants WGT211."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.integer_codes import change_codes, integer_modules, same_layer, top_code
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import quantum
from degarble.profile.code_groups import code_groups

SHARE = 0.4
MIN_PEERS = 8


@fault("WGT211")
def codes_wrapped(patient: Patient) -> Location:
    """Turn four in ten of the highest codes of one module into 0, as packing 16 into four bits does."""
    module = patient.pick(_suitable(patient))
    _wrap(patient, [module])
    return module.place()


@fault("WGT211")
def codes_of_a_layer_wrapped(patient: Patient) -> Location:
    """The same in one layer or expert."""
    modules = _suitable(patient)
    module = patient.pick(modules)
    _wrap(patient, same_layer(modules, module))
    return module.place()


@fault("WGT211")
def codes_spilled(patient: Patient) -> Location:
    """Let the highest codes of one module carry into the next code of their word, as an unmasked packer does."""
    module = patient.pick(one for one in _suitable(patient) if _is_packed_by_input(one))
    top = top_code(module)
    rng = np.random.default_rng(patient.rng.randrange(1 << 30))
    change_codes(patient, [module], lambda codes: _spilled(codes, top, rng))
    return module.place()


def _suitable(patient: Patient) -> list[StoredModule]:
    """Modules that reach the top; symmetric ones need peers, and tools that never use an end show nothing."""
    modules = [
        one for one in integer_modules(patient) if (one.form.scheme.num_bits if one.form.scheme else 0) in (3, 4)
    ]
    if len(modules) < MIN_PEERS or modules[0].form.format == "gguf":
        raise NotApplicable("too few modules to compare with")
    codes = modules[0].codes()
    if codes.dtype != np.uint8 or not (codes == 0).any():
        raise NotApplicable("the lowest code is not used")
    return modules


def _wrap(patient: Patient, modules: list[StoredModule]) -> None:
    rng = np.random.default_rng(patient.rng.randrange(1 << 30))
    for one in modules:
        top = top_code(one)
        change_codes(
            patient,
            [one],
            lambda codes, top=top: np.where((codes == top) & (rng.random(codes.shape) < SHARE), 0, codes),  # type: ignore[misc]
        )


def _is_packed_by_input(module: StoredModule) -> bool:
    """Whether neighbours along the inputs share a 32-bit word, and the word is known to the profile."""
    if quantum(module) != 1 and module.form.format != "gptq":
        return False
    groups = code_groups([module], module)
    return groups is not None and groups.words is not None


def _spilled(codes: Array, top: int, rng: np.random.Generator) -> Array:
    """16 = 0 and a carry: the next code of the word gets an odd bit, as OR does."""
    per_word = 32 // (top.bit_length())
    words = codes[:, : codes.shape[1] // per_word * per_word].reshape(len(codes), -1, per_word).copy()
    runs_over = (words == top) & (rng.random(words.shape) < SHARE)
    words[runs_over] = 0
    words[:, :, 1:] |= runs_over[:, :, :-1].astype(words.dtype)
    changed = codes.copy()
    changed[:, : words.shape[1] * per_word] = words.reshape(len(codes), -1)
    return changed
