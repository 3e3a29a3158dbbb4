"""A guilty component in words and places: what the rules report."""

from __future__ import annotations

import math

from degarble.evidence.forward_pass import Blame
from degarble.finding import Location, Measure, Severity
from degarble_engine.attribution.grouping import Group
from degarble_engine.attribution.investigation import HARMFUL_KL, NOTICEABLE_KL, Investigation
from degarble_engine.attribution.ladder import Suspect
from degarble_engine.attribution.measures import Measures
from degarble_engine.attribution.operators import differing_ids, written_key
from degarble_engine.numerics.walked_model import WalkedModel

WORDS = {
    "not_finite": "holds values that are not finite",
    "slope": "is {slope:.3g} times the reference's",
    "row_slope": "row {row} is {row_slope:.3g} times the reference's",
    "z": "its error is {value:.3g} times what its rounding should cost",
    "row_z": "row {z_row}: its error is {value:.3g} times what its rounding should cost",
    "weight_z": "is {value:.3g} steps of its dtype away from the reference's",
    "row_weight_z": "a row is {value:.3g} steps of its dtype away from the reference's",
    "weight_z_of_peers": "its rounding error is {value:.3g} times that of its peers",
    "row_weight_z_of_peers": "a row's rounding error is {value:.3g} times that of its peers",
    "weight_z_of_high_peers": "its error is {value:.3g} times that of the worst of its peers",
    "row_over_weight_z": "one row's error is {value:.3g} times that of the others",
    "offset": "its values are shifted by {value:.2g} of a step in the mean, as by a zero point that is off",
    "relative": "its output is {value:.0%} away from the reference's",
}
OUTSIDE_WORDS = {
    "not_finite": "holds values that are not finite",
    "slope": "differs from the reference's by a factor (off by {value:.3g})",
    "relative": "is {value:.0%} away from the reference's",
    "rows_of_others": "has {value:.0f} rows that are not the reference's",
    "row_slope": "has a row whose size is off by {value:.0%}",
    "gain": "differs from the reference's by up to {value:.0%}",
}


def blame_of(group: Group, investigation: Investigation) -> Blame:
    """Everything the rules need to know of one group."""
    candidate = investigation.candidate
    places = tuple(_places(group, candidate))
    measured: dict[str, Measure] = {group.test: _number(group.value)}
    if len(group.suspects) == 1:
        measured |= _numbers(group.suspects[0].measures)
    return Blame(
        places=places,
        message=_message(group, candidate),
        severity=_severity(group),
        measured=measured,
        bound={group.test: group.bound} if group.bound else {},
        planted_kl=_finite(group.planted_kl),
        honest_kl=_finite(group.honest_kl),
        restored_kl=_finite(group.restored_kl),
        total_kl=_finite(investigation.total_kl),
        proven=investigation.is_proven(group),
    )


def _finite(value: float | None) -> float | None:
    """KL that is not finite counts as more than any that is."""
    if value is None or math.isnan(value):
        return None
    return min(value, 1e6)


def _number(value: float) -> Measure:
    return round(value, 6) if math.isfinite(value) else str(value)


def _severity(group: Group) -> Severity:
    if group.is_warning:
        return Severity.WARNING
    planted = group.planted_kl or 0.0
    if group.kind == "operator" and not planted >= HARMFUL_KL:
        return Severity.WARNING if planted >= NOTICEABLE_KL else Severity.INFO
    if group.honest_kl is not None and planted < group.honest_kl and not group.is_structural:
        return Severity.WARNING  # unusual, and no worse than honest rounding of the same module
    return Severity.ERROR


def _numbers(one: Measures) -> dict[str, Measure]:
    found = {
        "sqnr_db": one.sqnr_db, "relative_error": one.relative, "cosine_similarity": one.cosine, "z": one.z,
        "row_z": one.row_z, "weight_z": one.weight_z, "slope": one.slope, "row_slope": one.row_slope, "offset": one.offset,
    }  # fmt: skip
    return {name: _number(value) for name, value in found.items() if value is not None}


def _message(group: Group, candidate: WalkedModel) -> str:
    if group.kind == "operator":
        return f"{group.key} is {group.note}"
    if group.kind in ("embedding", "head", "final norm"):
        text = OUTSIDE_WORDS[group.test].format(value=group.value)
        return f"{group.name} ({group.kind}) {text}{f' ({group.note})' if group.note else ''}"
    if group.kind == "layer":
        return f"layer {group.layer}: all its linears differ from the reference's{group.note}"
    if group.kind == "type":
        return f"{group.name} differs from the reference's in {len(group.suspects)} layers{group.note}"
    where = f"{candidate.skeleton.layer_name(group.layer or 0)}.{group.name}"
    if group.kind == "norm":
        return f"{where}: its gain differs from the reference's, and nothing behind it makes up for that"
    return f"{where}: {_words(group.suspects[0])}{_partner(group.suspects[0].measures)}"


def _words(one: Suspect) -> str:
    if one.is_bias:
        return "its bias is not the reference's: the error is one constant vector, and the weights agree"
    measures = one.measures
    return WORDS[one.test].format(
        value=one.value, slope=measures.slope, row_slope=measures.row_slope, row=measures.row_slope_at,
        z_row=measures.row_z_at,
    )  # fmt: skip


def _partner(one: Measures) -> str:
    """A fold whose other half was forgotten is named by what differs; a reader must think of both."""
    halves = {"down_proj": "up_proj", "up_proj": "down_proj", "o_proj": "v_proj", "v_proj": "o_proj"}
    leaf = one.name.rpartition(".")[2]
    return f" (part of a fold with {halves[leaf]})" if one.folded and leaf in halves else ""


def _places(group: Group, candidate: WalkedModel) -> list[Location]:
    if group.kind == "operator":
        return [Location(file=candidate.file, key=written_key(candidate, str(group.key)))]
    if group.kind in ("embedding", "head", "final norm"):
        return [_parameter_place(candidate, f"{group.name}.weight", group.name, None)]
    if group.kind == "norm":
        module = f"{candidate.skeleton.layer_name(group.layer or 0)}.{group.name}"
        return [_parameter_place(candidate, f"{module}.weight", module, group.layer)]
    worst_first = sorted(group.suspects, key=lambda one: -one.score)
    places = [_suspect_place(one, candidate) for one in worst_first]
    if group.kind == "layer":
        return [Location(layer=group.layer), *places]
    return places


def _suspect_place(one: Suspect, candidate: WalkedModel) -> Location:
    layer = one.measures.layer
    module = f"{candidate.skeleton.layer_name(layer or 0)}.{one.measures.name}"
    stored = candidate.weights.stored_part(one.measures.parameter, one.measures.expert, one.measures.name)
    if stored is None:
        return Location(module=module, layer=layer, expert=one.measures.expert)
    role = "bias" if one.is_bias and "bias" in stored.form.roles else "payload"
    place = stored.place(role)
    row = {"row_slope": one.measures.row_slope_at, "row_z": one.measures.row_z_at}.get(one.test)
    return Location(
        file=place.file, tensor=place.tensor, module=module, layer=layer, expert=one.measures.expert, row=row
    )


def _parameter_place(candidate: WalkedModel, parameter: str, module: str, layer: int | None) -> Location:
    stored = candidate.weights.module_of(parameter)
    if stored is None:
        return Location(module=module, layer=layer)
    place = stored.place()
    return Location(file=place.file, tensor=place.tensor, module=module, layer=layer)


def tokenizer_blame(texts: list[str], candidate: WalkedModel, reference: WalkedModel) -> Blame | None:
    """The candidate's tokenizer gives other ids for the same text. Both models were run on the reference's."""
    if not texts:
        return None
    found = differing_ids(texts, reference.evidence, candidate.evidence)
    if found is None or found[0] == 0:
        return None
    return Blame(
        places=(Location(file="tokenizer.json"),),
        message=f"the tokenizer gives other ids than the reference's for {found[0]} of {len(texts)} texts",
        severity=Severity.ERROR,
        measured={"texts_with_other_ids": found[0], "first": found[1][:60]},
        bound={"texts_with_other_ids": 0},
        proven=False,
    )
