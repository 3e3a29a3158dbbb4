"""Plants QNT110."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_plain_but_declared_quantized import drop_skip_entries
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule

REGROUP = 16
"""Columns change places inside runs of 16, which divides every group and block size."""


@fault("QNT110")
def router_quantized(patient: Patient) -> Location:
    """Store one router as codes, and take it off the skip list."""
    router = patient.pick(_routers(patient))
    place = store_quantized(patient, router)
    _unlist(patient, [router])
    return place


@fault("QNT110")
def routers_quantized_in_all_layers(patient: Patient) -> Location:
    """Store every router as codes, and take them off the skip list."""
    routers = _routers(patient)
    places = [store_quantized(patient, router) for router in routers]
    _unlist(patient, routers)
    return patient.pick(places)


@fault("QNT110")
def router_not_skipped(patient: Patient) -> Location:
    """Take all routers off the skip list of a method that spares none by itself; they stay plain."""
    declaration = patient.evidence.find("declaration")
    routers = _routers(patient)
    if declaration is None or any(declaration.is_implicitly_plain(router.name) for router in routers):
        raise NotApplicable("routers are spared without being listed")
    drop_skip_entries(patient, lambda entry: any(entry == router.name for router in routers))
    router = patient.pick(routers)
    return Location(file=declaration.file, key=declaration.skips[0].key, module=router.name)


def _routers(patient: Patient) -> list[StoredModule]:
    return patient.modules(lambda m: m.kind == "router" and m.form.format == "plain" and len(m.any_part.shape) == 2)


def _unlist(patient: Patient, routers: list[StoredModule]) -> None:
    names = {router.name for router in routers}
    if any(names.intersection(skips.entries) for skips in patient.evidence.get("declaration").skips):
        drop_skip_entries(patient, names.__contains__)


def store_quantized(patient: Patient, target: StoredModule, name: str | None = None) -> Location:
    """Replace a plain matrix (or add one under `name`) by codes made from a quantised module of the same width."""
    rows, columns = target.any_part.shape
    donors = patient.modules(lambda m: m.kind == "linear" and m.form.is_quantized and m.form.shape is not None)
    exact = [donor for donor in donors if donor.form.shape == (rows, columns)]
    wide = [
        d
        for d in donors
        if d.form.shape and len(d.form.shape) == 2 and d.form.shape[0] >= rows and d.form.shape[1] == columns
    ]
    donor = patient.pick(exact or wide)
    arrays = _shuffled(donor) if donor in exact else _cut(donor, rows)
    stem, file = name or target.name, target.any_part.file
    if name is None:
        for info in target.parts.values():
            patient.workspace.drop(info.name)
    payload = None
    for role, array in arrays.items():
        full = donor.parts[donor.form.roles[role]].name.replace(donor.name, stem, 1)
        patient.workspace.add(file, full, array)
        payload = full if role == PAYLOAD else payload
    return Location(file=file, tensor=payload, module=stem, layer=None if name else target.layer)


def _shuffled(donor: StoredModule) -> dict[str, Array]:
    """The donor's parts with columns exchanged inside every group: the same statistics, other bytes."""
    arrays = {role: donor.array(role) for role in donor.form.roles if role != "bias"}
    try:
        codes, index = donor.codes(), donor.group_index()
        new = donor.replace(codes=np.ascontiguousarray(codes[:, _within_groups(index, codes.shape[1])]))
    except (NotImplementedError, ValueError, KeyError) as error:
        raise NotApplicable(f"{donor.name} cannot be rewritten: {error}") from None
    arrays[PAYLOAD] = new[donor.any_part.name]
    return arrays


def _within_groups(index: Array | None, columns: int) -> Array:
    """A permutation of the columns that leaves every group's set of columns alone."""
    order = np.arange(columns)
    if index is None:
        if columns % REGROUP:
            raise NotApplicable(f"{columns} columns")
        return order.reshape(-1, REGROUP)[:, ::-1].reshape(-1)
    for group in np.unique(index):
        members = np.flatnonzero(index == group)
        order[members] = members[::-1]
    return order


def _cut(donor: StoredModule, rows: int) -> dict[str, Array]:
    """The donor's first rows, for formats that store every part row by row."""
    out, columns = donor.form.shape or (0, 0)
    arrays: dict[str, Array] = {}
    for role in donor.form.roles:
        array = donor.array(role)
        if role == "shape":
            arrays[role] = np.array([rows, columns], array.dtype)
        elif array.size == 1:
            arrays[role] = array
        elif role != "bias" and array.shape[0] == out:
            arrays[role] = np.ascontiguousarray(array[:rows])
        elif role != "bias":
            raise NotApplicable(f"{role} of {donor.name} is not stored row by row")
    return arrays
