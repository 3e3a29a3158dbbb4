"""Kernel limits: known layers inside and outside, and GGUF's own table of block sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.engines.kernels import KernelLimit, kernel_limits


def _limit(format: str, kernel: str) -> KernelLimit:
    (found,) = (row for row in kernel_limits(format) if row.kernel.startswith(kernel))
    return found


def test_marlin_takes_an_ordinary_layer() -> None:
    """Ordinary shapes pass, and what is not known is not judged."""
    assert _limit("gptq", "Marlin").violations(4, 128, 4096, 4096) == []
    assert _limit("gptq", "Marlin").violations(None, None, 4096, 4096) == []
    assert _limit("awq", "Marlin").violations(8, -1, 64, 128) == []


def test_marlin_says_every_limit_with_both_numbers() -> None:
    """Each broken limit is a line with the found and the allowed number."""
    assert _limit("gptq", "Marlin").violations(3, 256, 8608 + 1, 4000) == [
        "num_bits 3 is not one of [4, 8]",
        "group_size 256 is not one of [-1, 32, 64, 128]",
        "in_features 4000 is not a multiple of 128",
        "out_features 8609 is not a multiple of 64",
        "in_features 4000 is not a multiple of group_size 256",
    ]


def test_machete_and_blocks() -> None:
    """One limit of each of three kernels."""
    assert _limit("gptq", "Machete").violations(4, 32, 4096, 4096) == ["group_size 32 is not one of [-1, 64, 128]"]
    assert _limit("fp8-block", "CUTLASS").violations(8, None, 192, 4096) == [
        "out_features 192 is not a multiple of 128"
    ]
    assert _limit("nvfp4", "NVFP4 linear").violations(4, 16, 1152, 1176) == ["in_features 1176 is not a multiple of 16"]


def test_unknown_format_has_no_limits() -> None:
    """No table row, no claim."""
    assert kernel_limits("exl9") == ()
    assert {row.kernel for row in kernel_limits("gptq", "gptqmodel")} == {"ExLlamaV2"}


def test_gguf_rows_equal_the_library_table() -> None:
    """Row widths are those of the gguf package."""
    constants = pytest.importorskip("gguf.constants")
    known = {f"gguf:{kind.name}": size[0] for kind, size in constants.GGML_QUANT_SIZES.items()}
    for format, block_size in known.items():
        for row in kernel_limits(format):
            assert row.in_multiple == block_size, format
    assert kernel_limits("gguf:Q4_K") and kernel_limits("gguf:Q8_0")


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([32, 64, 128]))
def test_multiples_of_all_limits_pass(rows: int, columns: int, group_size: int) -> None:
    """Whatever is a multiple of everything is accepted."""
    assert _limit("gptq", "Marlin").violations(4, group_size, 64 * rows, 128 * columns) == []
