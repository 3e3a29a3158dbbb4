"""Numbers of docs/explanation/error-bounds.md: the origin's formula, faults against the sigma model, healthy forms.

python scripts/error_bounds.py formula                  the printed formula on random linears, a second
python scripts/error_bounds.py faults MODEL             faults in 12 linears of three layers of a plain checkpoint
python scripts/error_bounds.py forms MODEL FORM...      coverage, z and bounds of quantised forms of it
python scripts/error_bounds.py claim MODEL              the source's own case: W8A4, share inside the printed formula
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from degarble_engine.attribution.bound_measures import ORIGIN, BoundMeasures, bound_measures
from degarble_engine.attribution.record import pairs_of
from degarble_engine.numerics.error_bounds import RoundedLinear, Rounding, coverage, rms, z_by_row
from degarble_engine.numerics.origin_formula import Reading, Trial, Widths, try_formula
from degarble_engine.numerics.precision import parse
from degarble_engine.numerics.tokens import built_in_texts, encode
from degarble_engine.numerics.walk import LayerWalk
from degarble_engine.numerics.walked_model import WalkedModel

SIZES = (16, 64, 256, 1024, 4096)
GROUP, LEVELS = 64, 15
LAYERS, LEAVES = (3, 15, 27), ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj")
TEXTS, MAX_TOKENS = 4, 64

Codes = tuple[Tensor, Tensor, Tensor]
"""(codes, step, zero point), each [out, groups, 64] or [out, groups, 1]."""


def trials() -> Iterator[tuple[int, Trial, Trial]]:
    """(n, levels from 0 to max, levels on both sides) of the W8A4 formula."""
    for inner in SIZES:
        yield (
            inner,
            try_formula(inner, Widths(weight=8, activation=4, signed=False)),
            try_formula(inner, Widths(weight=8, activation=4)),
        )


def formula_table() -> str:
    """As in the page."""
    lines = [
        "| n | error / bound | inside | error / bound, signed | inside, signed | error / corrected, signed |",
        "|---|---|---|---|---|---|",
    ]
    for inner, unsigned, signed in trials():
        cells = [f"{one.excess[Reading.ENTRIES]:.1f} | {one.inside[Reading.ENTRIES]:.1%}" for one in (unsigned, signed)]
        lines.append(f"| {inner} | {' | '.join(cells)} | {signed.corrected:.2f} |")
    return "\n".join(lines)


def rounded(weight: Tensor) -> Codes:
    """Four bits, asymmetric, groups of 64."""
    groups = weight.reshape(weight.shape[0], -1, GROUP)
    low, high = groups.amin(-1, keepdim=True).clamp_max(0), groups.amax(-1, keepdim=True).clamp_min(0)
    step = (high - low) / LEVELS
    zero = (-low / step).round()
    return (groups / step + zero).round().clamp(0, LEVELS), step, zero


def values(codes: Codes) -> Tensor:
    """[out, in]"""
    return ((codes[0] - codes[2]) * codes[1]).flatten(1)


def clipped(weight: Tensor) -> Codes:
    """The range of every group shrunk to 0.8."""
    codes, step, _ = rounded(weight)
    step = 0.8 * step
    groups = weight.reshape(codes.shape)
    zero = (-0.8 * groups.amin(-1, keepdim=True).clamp_max(0) / step).round()
    return (groups / step + zero).round().clamp(0, LEVELS), step, zero


def randomised(codes: Tensor, share: float = 0.001) -> Tensor:
    """Some codes replaced by any others."""
    generator = torch.Generator().manual_seed(1)
    chosen = torch.rand(codes.shape, generator=generator) < share
    return torch.where(chosen, torch.randint(0, LEVELS + 1, codes.shape, generator=generator).float(), codes)


def with_row(values: Tensor, row: int, new: Tensor | float) -> Tensor:
    """A copy."""
    found = values.clone()
    found[row] = new
    return found


def in_first_group(zero: Tensor) -> Tensor:
    """One more in group 0 only."""
    found = zero.clone()
    found[:, 0] += 1
    return found


FAULTS: dict[str, Callable[[Tensor, Codes], Codes]] = {
    "healthy": lambda _, c: c,
    "scales in bf16": lambda _, c: (c[0], c[1].bfloat16().float(), c[2]),
    "scale +2 %": lambda _, c: (c[0], c[1] * 1.02, c[2]),
    "scale +10 %": lambda _, c: (c[0], c[1] * 1.1, c[2]),
    "clipped to 0.8": lambda weight, _: clipped(weight),
    "zero point +1": lambda _, c: (c[0], c[1], c[2] + 1),
    "zero point +1 in group 0": lambda _, c: (c[0], c[1], in_first_group(c[2])),
    "scales rolled one group": lambda _, c: (c[0], c[1].roll(1, 1), c[2]),
    "nibbles swapped": lambda _, c: (c[0].reshape(*c[0].shape[:2], -1, 2).flip(-1).reshape(c[0].shape), c[1], c[2]),
    "0.1 % of codes random": lambda _, c: (randomised(c[0]), c[1], c[2]),
    "one row duplicated": lambda _, c: (
        with_row(c[0], 5, c[0][6]),
        with_row(c[1], 5, c[1][6]),
        with_row(c[2], 5, c[2][6]),
    ),
    "one row's scale 0": lambda _, c: (c[0], with_row(c[1], 5, 0.0), c[2]),
}


def linears(model: str) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, weight, its input) of twelve linears."""
    opened = WalkedModel.open(model)
    batch = encode(built_in_texts()[:TEXTS], [opened.evidence], "built-in texts", MAX_TOKENS)
    for step in LayerWalk([opened], batch):
        if step.index in LAYERS:
            run = step.runs[0]
            for leaf in LEAVES:
                yield (
                    f"{step.index}.{leaf}",
                    run.module.get_submodule(leaf).weight.float(),
                    run.taps.inputs[leaf].float(),
                )
        if step.index == max(LAYERS):
            return


def faults_table(model: str) -> str:
    """Each fault in all twelve: z, coverage, worst row, relative error, and the share that deterministic bounds hold."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for _, weight, inputs in linears(model):
        healthy = rounded(weight)
        floor = healthy[1] * 0.1
        for name, fault in FAULTS.items():
            codes = fault(weight, healthy)
            steps = torch.maximum(codes[1], floor).expand(codes[0].shape).flatten(1)
            linear = RoundedLinear(quantized=values(codes), inputs=inputs, rounding=Rounding.uniform(steps))
            output = inputs @ weight.T
            error, sigma = inputs @ (values(codes) - weight).T, linear.sigma()
            rows = z_by_row(error, sigma)
            within = float((error.abs() <= linear.deterministic() * 1.0001).float().mean())
            found.setdefault(name, []).append(
                (rms(rows), coverage(error, sigma), float(rows.max()), rms(error) / rms(output), within)
            )
    lines = [
        "| case | z (range over linears) | within 2σ | worst row z | relative error | within the deterministic bound |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows_of in found.items():
        z, shares, worst, errors, held = zip(*rows_of, strict=True)
        lines.append(
            f"| {name} | {statistics.fmean(z):.2f} ({min(z):.2f}–{max(z):.2f}) | {statistics.fmean(shares):.1%} | "
            f"{statistics.median(worst):.1f} | {statistics.median(errors):.3f} | {statistics.fmean(held):.2%} |"
        )
    return "\n".join(lines)


def measured(model: str, form: str, dtype: str = "fp32", layers: int | None = None) -> list[tuple[int, BoundMeasures]]:
    """Every linear of a form."""
    precision = parse(dtype)
    candidate, reference = WalkedModel.open(form, precision), WalkedModel.open(model)
    batch = encode(built_in_texts()[:TEXTS], [reference.evidence], "built-in texts", MAX_TOKENS)
    found = []
    for step in LayerWalk([reference, candidate], batch):
        if layers is not None and step.index >= layers:
            break
        found += [
            (step.index, bound_measures(pair, precision, candidate.weights.is_gguf)) for pair in pairs_of(step)[0]
        ]
    return found


def forms_table(model: str, forms: list[str]) -> str:
    """Healthy forms: the prediction, and every bound over the output."""
    names = ("deterministic", "Cauchy-Schwarz", "spectral", "Hoeffding 1e-9")
    lines = [
        f"| form | modules | error | predicted | within 2σ | z | {' | '.join(names)} |",
        f"|---|---|---|---|---|---|{'---|' * len(names)}",
    ]
    for form in forms:
        judged = [one for _, one in measured(model, form) if one.z is not None]
        if not judged:
            lines.append(f"| {Path(form).name} | 0 | not judged |")
            continue
        z = [one.z for one in judged if one.z is not None]
        sizes = [f"{statistics.median(one.bounds[name].relative for one in judged):.2f}" for name in names]
        predicted = statistics.median(one.predicted or 0.0 for one in judged)
        lines.append(
            f"| {Path(form).name} | {len(judged)} | {statistics.median(one.error for one in judged):.4f} | {predicted:.4f} | "
            f"{statistics.fmean(one.coverage[1] for one in judged):.1%} | {statistics.median(z):.3f} ({min(z):.2f}–{max(z):.2f}) | "
            f"{' | '.join(sizes)} |"
        )
    return "\n".join(lines)


def claim_table(model: str) -> str:
    """W8A4 as the source ran it, simulated: the first layer's attention, and all layers."""
    found = measured(model, model, "w8a4")
    lines = [
        "| where | error | within 2σ | " + " | ".join(f"inside, {reading.value}" for reading in Reading) + " |",
        "|---|---|---|---|---|---|",
    ]
    attention = [one for index, one in found if index == 0 and "self_attn" in one.name]
    for name, members in (("attention of layer 0", attention), ("all linears", [one for _, one in found])):
        inside = [
            f"{statistics.fmean(one.bounds[ORIGIN[reading]].inside for one in members):.2%}" for reading in Reading
        ]
        lines.append(
            f"| {name} | {statistics.fmean(one.error for one in members):.3f} | "
            f"{statistics.fmean(one.coverage[1] for one in members):.1%} | {' | '.join(inside)} |"
        )
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """One table."""
    commands = {"formula": lambda: formula_table(), "faults": lambda: faults_table(words[1]),
                "forms": lambda: forms_table(words[1], words[2:]), "claim": lambda: claim_table(words[1])}  # fmt: skip
    with torch.no_grad():
        print(commands[words[0]]())


if __name__ == "__main__":
    main(sys.argv[1:])
