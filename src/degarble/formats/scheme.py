"""A quantisation scheme in one vocabulary, whether a config declares it or shapes prove it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How a weight is quantised. None means: not said (declared) or not decidable (stored)."""

    method: str
    """The `quant_method` that speaks: gptq, awq, compressed-tensors, fp8, modelopt, bitsandbytes, …"""
    format: str | None = None
    """The method's own label for the stored layout: gptq_v2, gemm, pack-quantized, …; a claim, never proof."""
    type: str | None = None
    """int | float | codebook"""
    num_bits: int | None = None
    strategy: str | None = None
    """tensor | channel | group | block | tensor_group"""
    group_size: int | None = None
    """Inputs that share a scale; -1 never appears here, a whole row is strategy `channel`."""
    block_shape: tuple[int, int] | None = None
    symmetric: bool | None = None
    act_order: str | None = None
    """None, or the kind of activation ordering: `group` (a g_idx is stored) or `weight`/`static` (it is not)."""
    activations: str | None = None
    """None (weight only), `dynamic`, `local`, or `static` (needs stored input scales)."""

    @property
    def label(self) -> str:
        """Short text for messages: `4-bit int, group 128`."""
        parts = [f"{self.num_bits}-bit {self.type or ''}".strip() if self.num_bits else self.type or "unknown bits"]
        if self.block_shape:
            parts.append(f"blocks {self.block_shape[0]}x{self.block_shape[1]}")
        elif self.group_size:
            parts.append(f"group {self.group_size}")
        elif self.strategy:
            parts.append(f"per {self.strategy}")
        return ", ".join(parts)
