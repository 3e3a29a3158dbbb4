"""Every relayout of the package, at every width: identity on all codes at all positions, alone and among others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.evidence import Evidence, Settings
from degarble.repack.interface import Relayout, layouts, relayouts
from degarble.repack.verdict import Outcome
from degarble.repack.verify import chain_of, common_shape, verify, verify_relayout
from degarble.target import open_target

PAIRS = [(one, bits) for one in relayouts() for bits in one.widths]
CASES = [pytest.param(one, bits, id=f"{one.name} {bits}") for one, bits in PAIRS]
FEW_PLACES = [pair for pair in PAIRS if pair[1] < 8 and pair[0].name != "awq-gemm -> marlin"]


def by_name(source: str, target: str) -> Relayout:
    return next(one for one in relayouts() if (one.source, one.target) == (source, target))


def moved(relayout: Relayout, stored: np.ndarray, bits: int, shape: tuple[int, int]) -> np.ndarray:
    for step in relayout.steps(bits, shape):
        stored = step.function(stored)
    return stored


@pytest.mark.parametrize(("relayout", "bits"), CASES)
@pytest.mark.parametrize("tiles", [(1, 1), (2, 2), (3, 1)])
def test_identity(relayout: Relayout, bits: int, tiles: tuple[int, int]) -> None:
    verdict = verify_relayout(relayout, bits, tiles)
    assert verdict.outcome is Outcome.IDENTITY, verdict


@pytest.mark.parametrize(("relayout", "bits"), CASES)
def test_every_code_alone_at_every_position(relayout: Relayout, bits: int) -> None:
    """All codes (in large granules all single bits) at every position of one granule: nothing spills.

    The identity test above has every code at every position among others; here each has a blank neighbourhood.
    """
    source, target = layouts()[relayout.source], layouts()[relayout.target]
    shape = common_shape((source, target), bits, (1, 1))
    is_small = bits < 8 and shape[0] * shape[1] < 128
    for ground in (0, (1 << bits) - 1) if is_small else (0,):
        for place in np.ndindex(*shape):
            codes = np.full(shape, ground, np.uint8)
            for code in range(1 << bits) if is_small else (1 << np.arange(bits)):
                codes[place] = code
                stored = moved(relayout, source.pack(codes, bits), bits, shape)
                assert np.array_equal(target.unpack(stored, bits, shape), codes), (place, code)


@pytest.mark.parametrize(("relayout", "bits"), CASES)
def test_stored_as_the_target_stores(relayout: Relayout, bits: int) -> None:
    source, target = layouts()[relayout.source], layouts()[relayout.target]
    shape = common_shape((source, target), bits, (2, 3))
    codes = np.random.default_rng(1).integers(0, 1 << bits, shape).astype(np.uint8)
    expected = target.pack(codes, bits)
    stored = moved(relayout, source.pack(codes, bits), bits, shape)
    assert stored.dtype == expected.dtype and np.array_equal(stored, expected)


@pytest.mark.parametrize(("relayout", "bits"), CASES)
def test_signed_codes(relayout: Relayout, bits: int) -> None:
    """-2**(bits-1) … as two's complement fields and as excess codes come back with their signs."""
    source, target = layouts()[relayout.source], layouts()[relayout.target]
    shape = common_shape((source, target), bits, (1, 2))
    half = 1 << (bits - 1)
    signed = np.random.default_rng(2).integers(-half, half, shape)
    for fields, sign_bit in ((signed & (2 * half - 1), half), (signed + half, 0)):
        stored = moved(relayout, source.pack(fields.astype(np.uint8), bits), bits, shape)
        returned = target.unpack(stored, bits, shape).astype(np.int64)
        assert np.array_equal((returned ^ sign_bit) - half, signed)


@pytest.mark.parametrize(("relayout", "bits"), FEW_PLACES, ids=lambda value: getattr(value, "name", value))
def test_nothing_is_lost_even_without_knowing_the_target(relayout: Relayout, bits: int) -> None:
    """The black-box proof agrees with the comparison."""
    source, target = layouts()[relayout.source], layouts()[relayout.target]
    shape = common_shape((source, target), bits, (1, 1))
    steps = relayout.steps(bits, shape)
    chain = chain_of(lambda codes: source.pack(codes, bits), steps)
    assert verify(chain, [step.name for step in steps], bits, shape).outcome is Outcome.LOSSLESS


def test_ways_around_agree() -> None:
    """GPTQ to Marlin directly and over AWQ, and GPTQ to AWQ GEMV over two ways, give the same words."""
    shape = (128, 64)
    codes = np.random.default_rng(3).integers(0, 16, shape).astype(np.uint8)
    words = layouts()["gptq"].pack(codes, 4)
    over_awq = moved(by_name("gptq", "awq-gemm"), words, 4, shape)
    direct = moved(by_name("gptq", "marlin"), words, 4, shape)
    assert np.array_equal(moved(by_name("awq-gemm", "marlin"), over_awq, 4, shape), direct)
    turned = moved(by_name("gptq", "compressed-tensors"), words, 4, shape)
    assert np.array_equal(moved(by_name("awq-gemm", "awq-gemv"), over_awq, 4, shape), turned)
    shuffled = moved(by_name("gptq", "exllama"), words, 4, shape)
    assert np.array_equal(moved(by_name("exllama", "gptq"), shuffled, 4, shape), words)


def test_llama_cpp_shift_needs_no_clip() -> None:
    """(int8)(byte << 4) of an interleaved byte is the signed code times 16, for all sixteen codes."""
    shape = (4, 32)
    codes = np.broadcast_to(np.tile(np.arange(16, dtype=np.uint8), 2), shape).copy()
    stored = layouts()["q4-0-4x4"].pack(codes, 4)
    low = (stored << np.uint8(4)).view(np.int8)
    high = (stored & np.uint8(0xF0)).view(np.int8)
    assert set((low >> 4).reshape(-1).tolist()) == set(range(-8, 8)) == set((high >> 4).reshape(-1).tolist())


@pytest.mark.parametrize(
    ("folder", "source", "target"),
    [
        ("gptqmodel-gptq-sym-g128", "gptq", "marlin"),
        ("gptqmodel-gptq-sym-g128", "gptq", "exllama"),
        ("autoawq-gemm-g128", "awq-gemm", "gptq"),
        ("autoawq-gemm-g128", "awq-gemm", "marlin"),
        ("llm-compressor-w4a16-gptq-sym-g128", "compressed-tensors", "gptq"),
        ("llm-compressor-w4a16-gptq-sym-g128", "compressed-tensors", "gguf-halves"),
    ],
)
def test_real_words(golden: Path, folder: str, source: str, target: str) -> None:
    """What the field's own tools stored, relaid and read by the target's formula, gives the codes the format reads."""
    modules = Evidence(open_target(golden / folder), Settings()).get("modules")
    tried = 0
    for module in modules.values():
        if module.kind == "linear" and module.form.is_quantized:
            codes = module.codes()
            stored = moved(by_name(source, target), np.array(module.array("payload")), 4, codes.shape)
            assert np.array_equal(layouts()[target].unpack(stored, 4, codes.shape), codes), module.name
            tried += 1
    assert tried == 14
