"""How much scale to move: large inputs get larger weights, so that their products lose less to rounding.

    s_i = rms(x_i)^a,  normalised to a geometric mean of 1        a in 0 … 1

The exponent is searched: of all a, the one whose rounded consumers differ least on the calibration text, measured by
tr(D G D^T) with D = Q(W s) / s - W and G = sum x x^T, over every quantised consumer together. a = 0, which moves nothing,
is among them, so a fold never makes the layer worse in this measure. Scales are tried as they would be stored.

Paper: AWQ (Lin et al. 2023, arXiv:2306.00978); it takes the mean of |x|, here it is the root mean square, which the sums
at hand give.
"""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.quantize.clip_search import plain_grid
from degarble_engine.quantize.fold import Fold
from degarble_engine.quantize.input_statistics import InputStatistics
from degarble_engine.quantize.scheme import QuantScheme

EXPONENTS = (0.0, 0.15, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)


def best_scale(fold: Fold, statistics: InputStatistics, scheme: QuantScheme, dtype: torch.dtype) -> Tensor:
    """Storable scales of all channels. [channels]"""
    sizes = fold.by_channel(statistics.importance).sqrt()
    floor = float(sizes.max()) * 1e-4 or 1.0
    logs = sizes.clamp_min(floor).log()
    logs = logs - logs.mean()
    weights = [one.weight.reshape(-1, one.weight.shape[-1]) for one in fold.consumers if one.is_quantized]
    best, least = torch.ones(fold.channels), torch.inf
    for exponent in EXPONENTS:
        scale = fold.storable((exponent * logs).exp()) if exponent else torch.ones(fold.channels)
        columns = scale[fold.channel_of]
        loss = sum(_loss(weight, columns, statistics.gram, scheme, dtype) for weight in weights)
        if loss < least:
            best, least = scale, loss
    return best


def _loss(weight: Tensor, columns: Tensor, gram: Tensor, scheme: QuantScheme, dtype: torch.dtype) -> float:
    scaled = weight * columns
    off = plain_grid(scaled, scheme, dtype).round_all(scaled).sub_(scaled).div_(columns)
    return float(((off @ gram) * off).sum(dtype=torch.float64))
