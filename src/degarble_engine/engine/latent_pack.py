"""DeepSeek's FP8 record of a latent cache, 656 bytes a token: pack and unpack.

    bytes   0 … 511   512 × e4m3      latent, divided by the scale of its 128 lanes
    bytes 512 … 527     4 × float32   scales, little endian
    bytes 528 … 655    64 × bfloat16  rotated key, not quantised

Scales are powers of two, rounded up so that nothing saturates, with amax clamped to 1e-4 (FlashMLA, tests/quant.py).
A reader that takes the record for a flat one of 576 × e4m3 reads scales and half of a bfloat16 as lanes.
"""

from __future__ import annotations

import torch
from torch import Tensor

LATENT, ROPE, TILE = 512, 64, 128
RECORD_BYTES = LATENT + LATENT // TILE * 4 + ROPE * 2
E4M3_MAX = 448.0
SMALLEST_AMAX = 1e-4


def pack_latent(latent: Tensor, rope: Tensor) -> Tensor:
    """[num_tokens, 512] and [num_tokens, 64] to uint8 [num_tokens, 656]."""
    tiles = latent.float().reshape(-1, LATENT // TILE, TILE)
    amax = tiles.abs().amax(dim=-1, keepdim=True).clamp_min(SMALLEST_AMAX)
    scales = torch.exp2(torch.ceil(torch.log2(amax / E4M3_MAX)))
    codes = (tiles / scales).to(torch.float8_e4m3fn).reshape(-1, LATENT)
    parts = (codes.view(torch.uint8), scales.reshape(-1, LATENT // TILE).view(torch.uint8))
    return torch.cat([*parts, rope.to(torch.bfloat16).contiguous().view(torch.uint8)], dim=-1)


def unpack_latent(record: Tensor) -> tuple[Tensor, Tensor]:
    """uint8 [num_tokens, 656] to float32 [num_tokens, 512] and bfloat16 [num_tokens, 64]."""
    codes, scales, rope = record.split([LATENT, LATENT // TILE * 4, ROPE * 2], dim=-1)
    tiles = codes.contiguous().view(torch.float8_e4m3fn).float().reshape(-1, LATENT // TILE, TILE)
    latent = tiles * scales.contiguous().view(torch.float32).unsqueeze(-1)
    return latent.reshape(-1, LATENT), rope.contiguous().view(torch.bfloat16)
