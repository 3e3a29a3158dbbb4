"""Shapes, widths and group sizes that a kernel accepts; a layer outside them falls back to a slow path or fails.

Limits hold for what one rank holds: divide by the tensor-parallel degree first (`parallel.py`).
"""

from __future__ import annotations

from functools import cache

import msgspec

from degarble.engines.table import read_table

TABLE = "kernels.toml"


class KernelLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one kernel accepts."""

    engines: tuple[str, ...]
    kernel: str
    formats: tuple[str, ...]
    num_bits: tuple[int, ...] = ()
    group_sizes: tuple[int, ...] = ()
    """Along the input; -1 is one group a column. Empty: the kernel does not look at it."""
    in_multiple: int = 1
    out_multiple: int = 1
    group_divides_in: bool = False
    otherwise: str
    """What the engine does with a layer outside the limits."""
    source: str

    def violations(
        self, num_bits: int | None, group_size: int | None, out_features: int, in_features: int
    ) -> list[str]:
        """Which limits a layer breaks, with both numbers. `None` for what is not known or does not apply."""
        found = []
        if num_bits is not None and self.num_bits and num_bits not in self.num_bits:
            found.append(f"num_bits {num_bits} is not one of {list(self.num_bits)}")
        if group_size is not None and self.group_sizes and group_size not in self.group_sizes:
            found.append(f"group_size {group_size} is not one of {list(self.group_sizes)}")
        if in_features % self.in_multiple:
            found.append(f"in_features {in_features} is not a multiple of {self.in_multiple}")
        if out_features % self.out_multiple:
            found.append(f"out_features {out_features} is not a multiple of {self.out_multiple}")
        if self.group_divides_in and group_size is not None and group_size > 0 and in_features % group_size:
            found.append(f"in_features {in_features} is not a multiple of group_size {group_size}")
        return found


class _Kernels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    date: str
    kernel: tuple[KernelLimit, ...]


@cache
def _table() -> tuple[KernelLimit, ...]:
    return read_table(_Kernels, TABLE).kernel


def kernel_limits(format: str, engine: str | None = None) -> tuple[KernelLimit, ...]:
    """Every kernel known to run `format` (`gptq`, `awq`, `compressed-tensors`, `fp8-block`, `gguf:Q4_K`, …)."""
    return tuple(row for row in _table() if format in row.formats and (engine is None or engine in row.engines))
