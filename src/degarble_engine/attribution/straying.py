"""Modules whose error is not distributed as their rounding would make it, for the rule NUM307.

Only quantised modules whose scales are in the file, and whose peers are plainly rounded (or exact: reference and candidate
are on one grid), have a distribution to be compared with: error compensation (GPTQ) shapes its error by data, and a scheme
without scales tells none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.evidence.forward_pass import Stray
from degarble.finding import Location
from degarble_engine.attribution.ladder import EXACT, PLAIN, peers_of
from degarble_engine.attribution.measures import Measures
from degarble_engine.attribution.record import LayerRecord
from degarble_engine.numerics.walked_model import WalkedModel


def strays_of(records: Sequence[LayerRecord], candidate: WalkedModel) -> Iterator[Stray]:
    """z and coverage of every module that can be judged; which of them are outside is the rule's to say."""
    measures = [one for record in records for one in record.measures]
    peers = peers_of(measures)
    for one in measures:
        if one.bits is None or peers[one.scheme].rounding not in (PLAIN, EXACT) or not one.finite:
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


def _place(one: Measures, candidate: WalkedModel) -> Location:
    module = f"{candidate.skeleton.layer_name(one.layer or 0)}.{one.name}"
    stored = candidate.weights.stored_part(one.parameter, one.expert, one.name)
    if stored is None:
        return Location(module=module, layer=one.layer, expert=one.expert)
    place = stored.place()
    return Location(file=place.file, tensor=place.tensor, module=module, layer=one.layer, expert=one.expert)
