"""Higher precision for a few tokens: what it brings beside a random choice of as many, and what it costs in memory.

    python benchmarks/per_token.py --quantised FOLDER --calibration FILE --evaluation FILE [--reference FOLDER] [--share 0.05]
                                   [--sequences 8] [--shots 3]

Rows: the quantised model alone; its linears in the reference's precision for a share of the tokens, chosen at random (mean of
`shots` draws), by the predictor (fitted on the calibration text) and by the true gradients of the evaluation text (which no
server has); the reference itself. `kl` is the mean KL(reference || row) over positions, `against random` the difference
with its 95 % interval by paired bootstrap over sequences. `mib`: weights of the linears as they are held.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from degarble.formats.interface import StoredModule
from degarble_engine.ab.bootstrap import paired
from degarble_engine.ab.metric import mean_of
from degarble_engine.numerics.divergence import divergence
from degarble_engine.numerics.tokens import TokenBatch, batch_of
from degarble_engine.numerics.walk import final_states
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import chunks_of
from degarble_engine.sensitivity.mixed_walk import mixed_states
from degarble_engine.sensitivity.token_facts import token_features
from degarble_engine.sensitivity.token_gradient import token_gradients
from degarble_engine.sensitivity.token_predictor import NAMES, fit, spearman

DRAWS = 2000


def text(file: str, sequences: int) -> TokenBatch:
    """Token ids, a sequence a line."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()[:sequences]
    return batch_of([json.loads(line)["ids"] for line in lines], Path(file).name)


def mebibytes(model: WalkedModel) -> float:
    """Of the linears of all layers."""
    linears = [one for one in model.weights.modules.values() if _is_linear(one)]
    return sum(part.nbytes for one in linears for part in one.parts.values()) / 2**20


def _is_linear(module: StoredModule) -> bool:
    return module.kind == "linear" and module.layer is not None


def gradients(model: WalkedModel, batch: TokenBatch) -> torch.Tensor:
    """s_t of valid tokens."""
    with tempfile.TemporaryDirectory() as scratch:
        return token_gradients(model, chunks_of(model, batch), Path(scratch) / "walk")


class Rows:
    """Every row is judged on the same text."""

    def __init__(self, reference: WalkedModel, candidate: WalkedModel, batch: TokenBatch) -> None:
        self.reference, self.candidate, self.batch = reference, candidate, batch
        self.wanted, self.plain = final_states([reference, candidate], batch)

    def sums(self, states: torch.Tensor) -> np.ndarray:
        """KL and tokens of each sequence."""
        found = torch.zeros(self.batch.ids.shape)
        found[self.batch.valid] = divergence(self.reference, self.wanted, self.candidate, states).by_token
        return np.stack([found.sum(1).numpy(), self.batch.valid.sum(1).numpy()], 1).astype(np.float64)

    def of(self, chosen: torch.Tensor) -> np.ndarray:
        """With some valid tokens in the reference's precision."""
        mask = torch.zeros_like(self.batch.valid)
        mask[self.batch.valid] = chosen
        return self.sums(mixed_states(self.candidate, self.reference, self.batch, mask))


def largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """The so many largest."""
    found = torch.zeros(len(values), dtype=torch.bool)
    found[values.topk(count).indices] = True
    return found


def main() -> None:
    """Print the rows as one JSON list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quantised", required=True)
    parser.add_argument("--reference", default=".work/real/bf16")
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--evaluation", required=True)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--shots", type=int, default=3)
    given = parser.parse_args()
    reference, candidate = WalkedModel.open(given.reference), WalkedModel.open(given.quantised)
    learnt, judged = text(given.calibration, given.sequences), text(given.evaluation, given.sequences)
    learnt_states = final_states([candidate], learnt)[0]
    predictor = fit(token_features(candidate, learnt, learnt_states), gradients(reference, learnt))
    rows = Rows(reference, candidate, judged)
    true = gradients(reference, judged)
    predicted = predictor(token_features(candidate, judged, rows.plain))
    count = max(1, round(given.share * len(true)))
    random = [
        largest(torch.rand(len(true), generator=torch.Generator().manual_seed(shot)), count)
        for shot in range(given.shots)
    ]
    by_chance = sum(rows.of(one) for one in random) / given.shots
    arms = {
        "quantised alone": rows.sums(rows.plain),
        "tokens by chance": by_chance,
        "tokens by predictor": rows.of(largest(predicted, count)),
        "tokens by gradient": rows.of(largest(true, count)),
        "reference": rows.sums(rows.wanted),
    }
    one, both = mebibytes(candidate), mebibytes(candidate) + mebibytes(reference)
    held = {"quantised alone": one, "reference": both - one}
    table: list[dict[str, Any]] = []
    for name, sums in arms.items():
        apart = paired(by_chance, sums, mean_of, draws=DRAWS, seed=0)
        table.append(
            {
                "row": name,
                "kl": round(float(mean_of(sums.sum(0)[None])[0]), 4),
                "against random": ""
                if name == "tokens by chance"
                else f"{apart.difference:+.4f} ({apart.low:+.4f} to {apart.high:+.4f})",
                "mib": round(held.get(name, both)),
            }
        )
    weights = ", ".join(f"{name} {value:+.2f}" for name, value in zip(NAMES, predictor.weights[1:], strict=True))
    print(json.dumps([*table, {"row": f"Spearman {spearman(predicted, true):.3f}; {weights}"}]))


if __name__ == "__main__":
    main()
