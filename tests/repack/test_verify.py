"""Steps that are wrong in known ways: the verifier names the step, the place, the codes, and what became of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.repack.interface import Step, fields_of, layouts, words_of
from degarble.repack.verdict import Outcome, Verdict
from degarble.repack.verify import chain_of, verify
from degarble.repack.zero_points import minus_one_per_field, minus_one_per_word, plus_one_per_field

SHAPE = (2, 16)


def signed(fields: np.ndarray, bits: int = 4) -> np.ndarray:
    half = 1 << (bits - 1)
    return ((fields.astype(np.int16) ^ half) - half).astype(np.int8)


def judge(
    *functions: Callable[[np.ndarray], np.ndarray],
    pack: Callable[[np.ndarray], np.ndarray] = signed,
    unpack: Callable[[np.ndarray], np.ndarray] | None = None,
    bits: int = 4,
    shape: tuple[int, int] = SHAPE,
) -> Verdict:
    steps = [Step(name=f"step {number}", function=function) for number, function in enumerate(functions, start=1)]
    return verify(chain_of(pack, steps), [step.name for step in steps], bits, shape, unpack)


def natural(stored: np.ndarray) -> np.ndarray:
    return layouts()["codes"].unpack(stored, 4, SHAPE)


@pytest.mark.parametrize("unpack", [None, natural])
def test_the_classic_error(unpack: Callable[[np.ndarray], np.ndarray] | None) -> None:
    """clip(w << 4, -8, 7): sixteen codes become -8, 0 and 7."""
    verdict = judge(lambda w: np.clip(w << 4, -8, 7), unpack=unpack)
    assert (verdict.outcome, verdict.step, verdict.position) == (Outcome.LOST, "step 1", (0, 0))
    assert verdict.collisions == ((0,), tuple(range(1, 8)), tuple(range(8, 16)))
    assert verdict.values == (0, 7, -8)
    assert verdict.lost_codes == tuple(range(1, 16))


def test_the_clip_is_the_culprit_not_the_shift() -> None:
    verdict = judge(lambda w: w << 4, lambda w: np.clip(w, -8, 7))
    assert (verdict.outcome, verdict.step) == (Outcome.LOST, "step 2")
    assert judge(lambda w: w << 4).outcome is Outcome.LOSSLESS
    assert judge(lambda w: np.clip(w, -8, 7) << 4, lambda w: w >> 4, unpack=natural).outcome is Outcome.IDENTITY


def test_a_loss_that_is_hidden_behind_later_steps() -> None:
    verdict = judge(lambda w: w.copy(), lambda w: w & ~1, lambda w: w[::-1].copy(), lambda w: w << 1)
    assert (verdict.outcome, verdict.step) == (Outcome.LOST, "step 2")
    assert verdict.collisions[0] == (0, 1) and len(verdict.collisions) == 8


@pytest.mark.parametrize("place", [(0, 0), (1, 7), (0, 9), (1, 15)])
def test_a_single_place_is_found(place: tuple[int, int]) -> None:
    def spoil(w: np.ndarray) -> np.ndarray:
        w = w.copy()
        w[place] &= 7
        return w

    for unpack in (None, natural):
        verdict = judge(spoil, unpack=unpack)
        assert (verdict.outcome, verdict.position) == (Outcome.LOST, place)
        assert verdict.lost_codes == tuple(range(16))


@settings(max_examples=60, deadline=None)
@given(mapping=st.lists(st.integers(0, 15), min_size=16, max_size=16))
def test_any_map_of_codes(mapping: list[int]) -> None:
    """A map of single codes is lossless exactly if it is one to one; otherwise the groups are those of the map."""
    table = np.array(mapping, np.uint8)
    verdict = judge(lambda w: table[w], pack=lambda codes: codes)
    assert (verdict.outcome is Outcome.LOSSLESS) == (len(set(mapping)) == 16)
    if verdict.outcome is Outcome.LOST:
        assert {frozenset(group) for group in verdict.collisions} == {
            frozenset(code for code in range(16) if mapping[code] == value) for value in set(mapping)
        }
        if len(set(mapping)) > 1:
            assert sorted(verdict.values) == sorted(set(mapping))  # type: ignore[type-var]


def test_natural_order_read_as_awq_is_misplaced() -> None:
    awq = layouts()["awq-gemm"]

    def naive(codes: np.ndarray) -> np.ndarray:
        return words_of(codes.T.reshape(codes.shape[1], -1, 8), 4)

    shape = (16, 4)
    verdict = judge(naive, pack=lambda c: c, unpack=lambda stored: awq.unpack(stored, 4, shape), shape=shape)
    assert verdict.outcome is Outcome.MISPLACED
    assert ((1, 0), (2, 0)) in verdict.places


def test_pairs_read_as_halves_are_misplaced() -> None:
    """A naive packer for GGUF: codes 2j and 2j + 1 in byte j."""
    halves, shape = layouts()["gguf-halves"], (1, 32)
    verdict = judge(
        lambda c: c[:, ::2] | c[:, 1::2] << 4,
        pack=lambda c: c,
        unpack=lambda s: halves.unpack(s, 4, shape),
        shape=shape,
    )
    assert verdict.outcome is Outcome.MISPLACED and verdict.places[0] == ((0, 1), (0, 16))


def test_a_lost_sign_is_altered() -> None:
    verdict = judge(lambda w: w ^ 8, pack=lambda c: c, unpack=natural)
    assert verdict.outcome is Outcome.ALTERED
    assert dict(verdict.mapping) == {code: code ^ 8 for code in range(16)}


def test_codes_that_are_none_are_altered() -> None:
    verdict = judge(lambda w: w.astype(np.int16) * 5, unpack=natural)
    assert verdict.outcome is Outcome.ALTERED and "no codes" in verdict.detail


def test_unmasked_signed_codes_spill_into_the_word() -> None:
    """int8 codes joined with OR and no mask: a negative code sets every bit above its own."""

    def pack(w: np.ndarray) -> np.ndarray:
        shifts = np.arange(0, 32, 4, dtype=np.int32)
        return np.asarray(np.bitwise_or.reduce(w.astype(np.int32).reshape(2, 2, 8) << shifts, axis=-1))

    def unpack(words: np.ndarray) -> np.ndarray:
        return fields_of(words, 4).reshape(SHAPE)

    assert judge(pack, unpack=unpack).outcome is Outcome.LOST
    assert judge(lambda w: pack(w & 15), unpack=unpack).outcome is Outcome.IDENTITY


def test_sums_of_two_places() -> None:
    verdict = judge(lambda w: w[:, ::2].astype(np.int16) + w[:, 1::2])
    assert verdict.outcome is Outcome.LOST and "run into each other" in verdict.detail


def test_an_entangled_but_lossless_step_is_undecided() -> None:
    """Differences of neighbours lose nothing; the black box cannot say so, the comparison can."""

    def differences(w: np.ndarray) -> np.ndarray:
        return np.concatenate([w[:, :1], w[:, 1:] ^ w[:, :-1]], axis=1)

    verdict = judge(differences, pack=lambda c: c)
    assert verdict.outcome is Outcome.UNDECIDED and "same bits" in verdict.detail
    undone = judge(differences, lambda d: np.bitwise_xor.accumulate(d, axis=1), pack=lambda c: c, unpack=natural)
    assert undone.outcome is Outcome.IDENTITY


def test_a_neighbour_dependent_step_is_undecided() -> None:
    def depends(w: np.ndarray) -> np.ndarray:
        return w if np.count_nonzero(w) < 2 else w[:, ::-1].copy()

    assert judge(depends, pack=lambda c: c).outcome is Outcome.UNDECIDED


def test_a_result_of_another_size_each_time_is_undecided() -> None:
    assert judge(lambda w: np.flatnonzero(w), pack=lambda c: c).outcome in (Outcome.UNDECIDED, Outcome.LOST)


def test_a_result_that_no_layout_reads() -> None:
    with pytest.raises(ValueError, match="gptq"):
        judge(lambda w: w, unpack=lambda stored: layouts()["gptq"].unpack(stored, 4, SHAPE))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_zero_points_minus_one(bits: int) -> None:
    """Each field on its own comes back, modulo 2**bits; a whole word does not, once a zero point is 0."""
    shape, top = (2, 32 // bits), (1 << bits) - 1

    def through(step: Step, masked: bool) -> Verdict:
        return judge(
            step.function,
            plus_one_per_field(bits, masked=masked),
            pack=lambda codes: words_of(codes, bits),
            unpack=lambda zeros: layouts()["codes"].unpack(zeros, bits, shape),
            bits=bits,
            shape=shape,
        )

    assert through(minus_one_per_field(bits), True).outcome is Outcome.IDENTITY
    assert through(minus_one_per_word(bits), True).outcome is Outcome.ALTERED
    assert through(minus_one_per_field(bits), False).outcome is Outcome.ALTERED
    zeros = np.full((1, 32 // bits), 3 % (top + 1), np.uint8)
    zeros[0, 0] = 0
    arrived = plus_one_per_field(bits)(minus_one_per_word(bits).function(words_of(zeros, bits)))
    assert arrived[0].tolist() == [0, zeros[0, 1] - 1, *zeros[0, 2:].tolist()]


def test_the_borrow_of_the_field() -> None:
    """0x80808080 - 0x11111111 is 0x6f6f6f6f: zero points 8 become 7 in fact, since the 0 below borrows."""
    word = np.array([0x80808080], np.uint32).view(np.int32)
    assert int(minus_one_per_word(4).function(word).view(np.uint32)[0]) == 0x6F6F6F6F
    assert int(minus_one_per_field(4).function(word[None]).view(np.uint32)[0, 0]) == 0x7F7F7F7F
