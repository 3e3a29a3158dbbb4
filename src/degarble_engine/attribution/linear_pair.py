"""One linear of reference and candidate, with the reference's input: what every local test looks at.

Norm gains are folded into the weights, W' = W diag(gain), and the input is the normalised hidden state without its gain:
then a fold that a quantiser moved from a norm into the weights behind it vanishes, and one that was forgotten does not.
Fused experts become one pair for each expert and part, on the tokens that the *reference* sends there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from degarble.formats.interface import StoredModule
from degarble_engine.numerics.tap import Taps, is_norm
from degarble_engine.numerics.walk import LayerRun

ALL = slice(None)
SAME_GAIN = 2.0**-7
"""|ln ratio| of two gains that bf16 cannot tell apart: two ulps."""


@dataclass(slots=True)
class NormPair:
    """One norm of both models: its gain, and who reads it."""

    name: str
    """Relative to the layer."""
    stored: StoredModule | None
    reference: Tensor  # [features] gain
    candidate: Tensor  # [features] gain
    normalised: Tensor | None
    """[tokens, features] without the gain; None for norms that also shift."""
    consumers: list[LinearPair] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Beyond what storing it once more can change."""
        logs = (self.candidate.abs() / self.reference.abs()).log()
        signs = (self.candidate.sign() == self.reference.sign()) | (self.reference == 0)
        return bool((logs[torch.isfinite(logs)].abs() > SAME_GAIN).any() or not signs.all()
                    or not torch.isfinite(self.candidate).all())  # fmt: skip


@dataclass(slots=True)
class LinearPair:
    """Weights as stored, and the factors that make them comparable."""

    name: str
    """Relative to the layer; `mlp.experts.3.up_proj` for a part of fused experts."""
    parameter: str
    """Full name of the parameter in both models."""
    stored: StoredModule | None
    expert: int | None
    rows: tuple[int, int] | None
    """Rows of the parameter that are this pair's, where a fused one is split."""
    reference: Tensor  # [out, in]
    candidate: Tensor  # [out, in]
    reference_bias: Tensor | None
    candidate_bias: Tensor | None
    input: Tensor  # [tokens, in] the reference's, without the norm's gain once `fold` was called
    reference_gain: Tensor | None = None
    candidate_gain: Tensor | None = None
    row_fold: Tensor | None = None
    """[out] what the candidate's outputs are divided by (folds between up and down, v and o)."""
    column_fold: Tensor | None = None
    """[in] what the candidate's columns are divided by."""
    transposed: bool = False
    """Whether the parameter is stored [in, out], as some families have their experts."""
    output: Tensor | None = None
    """[tokens, out] the reference's own, bias included, where a tap has it."""

    @property
    def leaf(self) -> str:
        """`down_proj`."""
        return self.name.rpartition(".")[2]

    @property
    def kind(self) -> str:
        """The name with `*` for an expert's number: equal for peers in all layers."""
        return ".".join("*" if part.isdigit() else part for part in self.name.split("."))

    def folded_reference(self, part: slice = ALL) -> Tensor:
        """[out, in] with the gain; only some rows where `part` says so."""
        found = self.reference[part]
        return found if self.reference_gain is None else found * self.reference_gain

    def column_factor(self) -> Tensor | None:
        """[in] what the candidate's weight is multiplied with to stand on the same input."""
        found = self.candidate_gain
        if self.column_fold is not None:
            found = 1 / self.column_fold if found is None else found / self.column_fold
        return found

    def scaled(self, values: Tensor, part: slice = ALL) -> Tensor:
        """Candidate's values (weights or steps) with gain and folds; `part`: which rows they are."""
        columns = self.column_factor()
        if columns is not None:
            values = values * columns
        return values if self.row_fold is None else values / self.row_fold[part, None]

    def folded_candidate(self, part: slice = ALL) -> Tensor:
        """[out, in] with gain, folds divided out; only some rows where `part` says so."""
        return self.scaled(self.candidate[part], part)

    def bias_difference(self) -> Tensor | None:
        """[out] candidate's bias minus the reference's, folds divided out; None where neither has one."""
        mine, theirs = self.candidate_bias, self.reference_bias
        if mine is not None and self.row_fold is not None:
            mine = mine / self.row_fold
        if mine is None or theirs is None:
            return mine if theirs is None else -theirs
        return mine - theirs

    def planted(self) -> Tensor:
        """The candidate's weight as it would stand in the reference."""
        found = self.folded_candidate()
        return found if self.reference_gain is None else _divided(found, self.reference_gain)

    def restored(self) -> Tensor:
        """The reference's weight as it would stand in the candidate."""
        found = self.folded_reference()
        if self.row_fold is not None:
            found = found * self.row_fold[:, None]
        columns = self.column_factor()
        return found if columns is None else _divided(found, columns)


def _divided(values: Tensor, by: Tensor) -> Tensor:
    return values / torch.where(by == 0, torch.ones_like(by), by)


def plain_pair(
    name: str, module: nn.Module, other: nn.Module, reference: LayerRun, candidate: LayerRun
) -> LinearPair | None:
    """One linear or router; None where the shapes differ."""
    one, two = module._parameters.get("weight"), other._parameters.get("weight")
    if one is None or two is None or one.ndim != 2 or one.shape != two.shape:
        return None
    parameter = f"{reference.model.skeleton.layer_name(reference.index)}.{name}.weight"
    return LinearPair(
        name=name,
        parameter=parameter,
        stored=candidate.model.weights.module_of(parameter),
        expert=None,
        rows=None,
        reference=one.data.float(),
        candidate=two.data.float(),
        reference_bias=_bias(module),
        candidate_bias=_bias(other),
        input=reference.taps.inputs[name].float(),
        output=reference.taps.outputs[name].float() if isinstance(module, nn.Linear) else None,
    )


def _bias(module: nn.Module) -> Tensor | None:
    found = module._parameters.get("bias")
    return None if found is None else found.data.float()


def norm_pairs(reference: LayerRun, candidate: LayerRun, pairs: list[LinearPair]) -> list[NormPair]:
    """All norms, each with the linears that read exactly what it gives; those get their input without the gain."""
    found = []
    modules = dict(candidate.module.named_modules())
    for name, module in reference.module.named_modules():
        other = modules.get(name)
        if not is_norm(module) or other is None or name not in reference.taps.inputs:
            continue
        if module.weight.shape != other.weight.shape:
            continue
        found.append(_norm_pair(name, module, other, reference, candidate, pairs))
    return found


def _norm_pair(
    name: str, module: nn.Module, other: nn.Module, reference: LayerRun, candidate: LayerRun, pairs: list[LinearPair]
) -> NormPair:
    taps = reference.taps
    normalised, shift = _normalised(module, taps, name)
    parameter = f"{reference.model.skeleton.layer_name(reference.index)}.{name}.weight"
    pair = NormPair(
        name=name,
        stored=candidate.model.weights.module_of(parameter),
        reference=module.weight.data.float() + shift,
        candidate=other.weight.data.float() + shift,
        normalised=normalised,
    )
    if normalised is None:
        return pair
    output = taps.outputs[name]
    for one in pairs:
        is_read = one.input.shape == output.shape and (one.expert is None) and torch.equal(one.input, output.float())
        of_expert = one.expert is not None and one.leaf != "down_proj" and normalised.shape[1] == one.input.shape[1]
        if not is_read and not (of_expert and _reads(name, one, taps)):
            continue
        one.reference_gain, one.candidate_gain = pair.reference, pair.candidate
        one.input = normalised if one.expert is None else _divided(one.input, pair.reference)
        pair.consumers.append(one)
    return pair


def _reads(norm: str, pair: LinearPair, taps: Taps) -> bool:
    hidden = taps.experts[pair.name.split(f".{pair.expert}.")[0]].hidden
    return bool(hidden.shape == taps.outputs[norm].shape and torch.equal(hidden, taps.outputs[norm]))


def _normalised(module: nn.Module, taps: Taps, name: str) -> tuple[Tensor | None, float]:
    """The input over its rms, and what the gain is stored without: 0, or 1 for families that multiply by 1 + w."""
    hidden, output = taps.inputs[name].float(), taps.outputs[name].float()
    eps = float(getattr(module, "variance_epsilon", getattr(module, "eps", 0.0)))
    unit = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + eps)
    gain = module.weight.data.float()
    for shift in (0.0, 1.0):
        wanted = unit * (gain + shift)
        if torch.allclose(wanted, output, rtol=1e-2, atol=1e-3 * float(output.abs().max())):
            return unit, shift
    return None, 0.0
