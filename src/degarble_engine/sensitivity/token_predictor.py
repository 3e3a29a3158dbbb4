"""Which tokens will be sensitive, told before they are computed: a line through what is known by then.

    log s_t  ~  w . [ 1, log |e_t|, log max |e_t| / rms e_t, H_{t-1}, -log p(token t), log (t + 1), is first ]

e_t is the token's embedding, H_{t-1} the entropy of the distribution that it came from, in nats, and p(token t) its
probability there; both are the served model's own. Fitted by ridge regression on s_t (token_gradient.py) of calibration
text, with features brought to mean 0 and deviation 1. It predicts what the rest of a text will make of a token, which
nothing known at that moment fixes: `rank_correlation` on other text says how far it gets, and goes with it everywhere.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

NAMES = ("log_norm", "log_outlier", "entropy_before", "surprisal", "log_position", "is_first")
RIDGE = 1e-3


class TokenPredictor(msgspec.Struct, frozen=True, kw_only=True):
    """The fit; plain numbers, so that it can be kept in a JSON file."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]
    weights: tuple[float, ...]
    """Constant first."""
    rank_correlation: float | None = None
    """Spearman's, with s_t of held-out text; None where it was not measured."""

    def __call__(self, features: Tensor) -> Tensor:
        """[tokens, features] -> [tokens] log s_t."""
        scaled = (features - torch.tensor(self.means)) / torch.tensor(self.deviations)
        return scaled @ torch.tensor(self.weights[1:]) + self.weights[0]


def features_of(embedded: Tensor, entropy: Tensor, surprisal: Tensor, position: Tensor) -> Tensor:
    """[tokens, features]. `entropy` and `surprisal` of a first token do not exist, and are not read."""
    rms = embedded.square().mean(1).sqrt().clamp_min(1e-12)
    is_first = position == 0
    known = ~is_first
    columns = [
        (rms * embedded.shape[1] ** 0.5).log(),
        (embedded.abs().amax(1) / rms).log(),
        torch.where(known, entropy, torch.zeros_like(entropy)),
        torch.where(known, surprisal, torch.zeros_like(surprisal)),
        (position + 1).float().log(),
        is_first.float(),
    ]
    return torch.stack(columns, 1).float()


def fit(features: Tensor, gradients: Tensor) -> TokenPredictor:
    """Least squares with a small ridge."""
    means, deviations = features.mean(0), features.std(0).clamp_min(1e-6)
    scaled = torch.cat([torch.ones(len(features), 1), (features - means) / deviations], 1).double()
    wanted = gradients.clamp_min(torch.finfo(torch.float32).tiny).log().double()
    gram = scaled.T @ scaled
    gram.diagonal()[1:] += RIDGE * len(features)
    weights = torch.linalg.solve(gram, scaled.T @ wanted)
    return TokenPredictor(
        means=tuple(means.tolist()), deviations=tuple(deviations.tolist()), weights=tuple(weights.tolist())
    )


def spearman(one: Tensor, other: Tensor) -> float:
    """Rank correlation; equal values share their mean rank."""
    ranks = torch.stack([_ranks(one), _ranks(other)])
    return float(torch.corrcoef(ranks)[0, 1])


def _ranks(values: Tensor) -> Tensor:
    _, inverse, counts = values.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    return (ends - (counts.double() - 1) / 2)[inverse]
