"""Modules whose error is not distributed as their rounding would make it (NUM307), and those of the suspects that are not
the reference's at all or do not undo a fold (WGT228, WGT227).

Only quantised modules whose scales are in the file, and whose peers are plainly rounded (or exact: reference and candidate
are on one grid), have a distribution to be compared with: error compensation (GPTQ) shapes its error by data, and a scheme
without scales tells none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.evidence.forward_pass import Misfit, Stray
from degarble.finding import Location
from degarble_engine.attribution.grouping import Group
from degarble_engine.attribution.ladder import EXACT, PLAIN, peers_of, suspects
from degarble_engine.attribution.measures import Measures
from degarble_engine.attribution.record import LayerRecord, NormRecord
from degarble_engine.numerics.walked_model import WalkedModel


def strays_of(records: Sequence[LayerRecord], candidate: WalkedModel, blamed: Sequence[Group] = ()) -> Iterator[Stray]:
    """z and coverage of every module that can be judged; which of them are outside is the rule's to say.

    Not of those behind a norm whose gain they do not make up for, or that is blamed by what its readers have in common:
    their error is the norm's, not their rounding's.
    """
    measures = [one for record in records for one in record.measures]
    peers = peers_of(measures)
    behind = {(record.index, name) for record in records for norm in record.norms for name in _readers(norm)}
    norms = [group for group in blamed if group.kind == "norm"]
    behind |= {(one.measures.layer or 0, one.measures.name) for group in norms for one in group.suspects}
    for one in measures:
        if (
            (one.layer or 0, one.name) in behind
            or one.bits is None
            or peers[one.scheme].rounding not in (PLAIN, EXACT)
            or not one.finite
        ):
            continue
        if one.z is not None and one.row_z is not None:
            yield Stray(
                location=_place(one, candidate),
                module=f"{candidate.skeleton.layer_name(one.layer or 0)}.{one.name}",
                kind=one.kind,
                z=one.z,
                row_z=one.row_z,
                row=one.row_z_at,
                coverage=1.0 if one.coverage is None else one.coverage,
                weight_z=(one.weight_z or 0.0) / max(peers[one.scheme].median, 1.0),
            )


def misfits_of(records: Sequence[LayerRecord], candidate: WalkedModel) -> Iterator[Misfit]:
    """Suspects of the ladder with what they do to their own outputs; biases and what is not finite have rules of their own."""
    unfolded = _unfolded(records, candidate)
    for one in suspects([measures for record in records for measures in record.measures]):
        found = one.measures
        if one.is_warning or one.is_bias or not found.finite:
            continue
        yield Misfit(
            location=_place(found, candidate),
            module=f"{candidate.skeleton.layer_name(found.layer or 0)}.{found.name}",
            norm=unfolded.get((found.layer or 0, found.name)),
            relative=found.relative,
            cosine=found.cosine,
            slope=found.slope,
            z=found.z,
        )


def _unfolded(records: Sequence[LayerRecord], candidate: WalkedModel) -> dict[tuple[int, str], str]:
    """(layer, linear) -> the norm in front of it whose change the linear does not undo."""
    return {
        (record.index, name): f"{candidate.skeleton.layer_name(record.index)}.{norm.name}"
        for record in records
        for norm in record.norms
        for name in norm.unfolded
    }


def _readers(norm: NormRecord) -> list[str]:
    """Linears whose input a changed gain scales, with nothing that undoes it."""
    return norm.consumers if norm.guilty else norm.unfolded


def _place(one: Measures, candidate: WalkedModel) -> Location:
    module = f"{candidate.skeleton.layer_name(one.layer or 0)}.{one.name}"
    stored = candidate.weights.stored_part(one.parameter, one.expert, one.name)
    if stored is None:
        return Location(module=module, layer=one.layer, expert=one.expert)
    place = stored.place()
    return Location(file=place.file, tensor=place.tensor, module=module, layer=one.layer, expert=one.expert)
