"""What the processor multiplies in hardware, which decides how weights are kept."""

from __future__ import annotations

import torch


def has_bf16_units() -> bool:
    """AVX512-BF16 or AMX. Without them a bf16 product is widened number by number, slower than fp32 from two rows on."""
    units = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(unit is not None and unit() for unit in units)
