"""Two dumps of one cache are equal in any layouts; a difference is placed and explained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from degarble.errors import LayoutMismatch
from degarble.kvcache.dump import compare_dumps, make_dump
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import CATALOGUE, KVLayout, find_layout

SIZE = Geometry(num_blocks=6, block_size=4, num_kv_heads=3, head_dim=16, latent=16, num_layers=2, x=4)
KNOWN = {"num_kv_heads": 3, "head_dim": 16}


def stored(layout: KVLayout, seed: int = 0) -> np.ndarray:
    """The same logical content in any layout of the same axes: made in canonical order and moved."""
    sizes = SIZE.sizes()
    order = ("layers", "kv", "num_blocks", "block_size", "num_kv_heads", "head_dim", "head_dim/x", "x", "latent")
    atoms = [atom for atom in order if atom in layout.atoms]
    plain = np.random.default_rng(seed).standard_normal([sizes[atom] for atom in atoms]).astype(np.float32)
    return plain.transpose([atoms.index(atom) for atom in layout.atoms]).reshape(layout.shape(SIZE))


def explained(found: np.ndarray, expected: np.ndarray, layout: str = "NHD", second: str = "NHD", **more: Any) -> str:
    known = KNOWN if "*" in "".join(find_layout(layout).axes) else {}
    difference = compare_dumps(
        make_dump(found, find_layout(layout), known, **more), make_dump(expected, find_layout(second), known, **more)
    )
    assert difference is not None
    return str(difference.explanation)


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
@pytest.mark.parametrize("other", CATALOGUE, ids=lambda layout: layout.name)
def test_every_pair_of_layouts(layout: KVLayout, other: KVLayout) -> None:
    def known(one: KVLayout) -> dict[str, int]:
        return KNOWN if "*" in "".join(one.axes) else {}

    mine, theirs = make_dump(stored(layout), layout, known(layout)), make_dump(stored(other), other, known(other))
    if set(layout.atoms) == set(other.atoms):
        assert compare_dumps(mine, theirs) is None
    elif mine.rows().shape != theirs.rows().shape:
        with pytest.raises(LayoutMismatch, match="in the first dump"):
            compare_dumps(mine, theirs)


@pytest.mark.parametrize("wrong", ["HND", "head-major"])
def test_a_dump_read_with_the_wrong_layout(wrong: str) -> None:
    right = stored(find_layout("NHD"))
    real = stored(find_layout(wrong))
    text = explained(real.reshape(right.shape), right)
    assert text.startswith(f"the first dump is laid out as {wrong}")


def test_k_and_v_exchanged() -> None:
    right = stored(find_layout("NHD-kv-first"))
    assert explained(right[::-1], right, "NHD-kv-first", "NHD-kv-first") == "K and V are exchanged"


@pytest.mark.parametrize("shift", [1, 3])
def test_tokens_shifted(shift: int) -> None:
    right = stored(find_layout("NHD"))
    flat = right.reshape(24, 3, 16)
    late = np.concatenate([np.zeros((shift, 3, 16), np.float32), flat[:-shift]]).reshape(right.shape)
    assert f"tokens are {shift} slots too late" in explained(late, right)
    early = np.concatenate([flat[shift:], np.zeros((shift, 3, 16), np.float32)]).reshape(right.shape)
    assert f"tokens are {shift} slots too early" in explained(early, right)


@pytest.mark.parametrize(("axis", "name"), [(2, "heads"), (3, "lanes")])
def test_permutations(axis: int, name: str) -> None:
    right = stored(find_layout("NHD"))
    order = np.roll(np.arange(right.shape[axis]), 1)
    assert f"{name} are permuted" in explained(np.take(right, order, axis=axis), right)


def test_rotated_lanes() -> None:
    """Halves against pairs: the commonest permutation of lanes."""
    right = stored(find_layout("NHD"))
    halves = np.concatenate([right[..., 0::2], right[..., 1::2]], axis=-1)
    assert "the first has halves, the second pairs" in explained(halves, right)
    assert "the first has pairs, the second halves" in explained(right, halves)


def test_blocks_and_layers() -> None:
    right = stored(find_layout("NHD"))
    assert "tokens are permuted" in explained(right[[1, 0, 2, 3, 5, 4]], right)
    layered = stored(find_layout("layer-first"))
    assert "layers are permuted" in explained(layered[::-1], layered, "layer-first", "layer-first")


def test_a_factor() -> None:
    right = stored(find_layout("NHD"))
    assert "the second is 0.25 times the first" in explained(right * 4, right)


def test_nothing_explains_it() -> None:
    right = stored(find_layout("NHD"))
    wrong = right.copy()
    wrong[2, 1, 0, 5] += 1
    wrong[4, 0, 2, 3] -= 8
    difference = compare_dumps(make_dump(wrong, find_layout("NHD"), {}), make_dump(right, find_layout("NHD"), {}))
    assert difference is not None and difference.explanation is None
    assert (difference.token, difference.head, difference.dim, difference.num_different) == (9, 0, 5, 2)
    assert difference.max_abs_difference == pytest.approx(8) and difference.found == pytest.approx(
        difference.expected + 1
    )


def test_tables_tolerance_and_nan() -> None:
    """Two pools hold one sequence in different blocks."""
    right = stored(find_layout("NHD"))
    moved = np.full_like(right, np.nan)
    moved[[3, 0]] = right[[1, 4]]
    first = make_dump(moved, find_layout("NHD"), {}, [3, 0], 7)
    second = make_dump(right, find_layout("NHD"), {}, [1, 4], 7)
    assert compare_dumps(first, second) is None and first.rows().shape == (1, 1, 7, 3, 16)
    assert compare_dumps(make_dump(moved, find_layout("NHD"), {}), make_dump(moved, find_layout("NHD"), {})) is None
    close = make_dump(right + 1e-4, find_layout("NHD"), {})
    assert compare_dumps(close, make_dump(right, find_layout("NHD"), {}), atol=1e-3) is None


def test_zeros_are_explained_by_nothing() -> None:
    right = stored(find_layout("NHD"))
    difference = compare_dumps(make_dump(right * 0, find_layout("NHD"), {}), make_dump(right, find_layout("NHD"), {}))
    assert difference is not None and difference.explanation is None


def test_all_nan_has_no_largest_difference() -> None:
    right = stored(find_layout("NHD"))
    wrong = make_dump(np.full_like(right, np.nan), find_layout("NHD"), {})
    difference = compare_dumps(wrong, make_dump(right, find_layout("NHD"), {}))
    assert difference is not None and np.isnan(difference.max_abs_difference) and difference.explanation is None


@pytest.mark.parametrize(
    ("layout", "shape", "known", "table", "num_tokens", "said"),
    [
        ("NHD", (2, 3), {}, None, None, "has 4 axes"),
        ("NHD-flat", (2, 4, 12), {}, None, None, "give the size of num_kv_heads"),
        ("NHD-flat", (2, 4, 12), {"head_dim": 5}, None, None, "has the size 12 in the dump, and 5"),
        ("NHD-kv-first", (3, 2, 4, 1, 8), {}, None, None, "axis kv has the size 3"),
        ("NHD", (2, 4, 1, 8), {}, [2], None, r"names blocks outside \[0, 2\)"),
        ("NHD", (2, 4, 1, 8), {}, [1], 5, "5 tokens do not fit 1 blocks of 4"),
    ],
)
def test_dumps_that_do_not_fit(
    layout: str,
    shape: tuple[int, ...],
    known: dict[str, int],
    table: Sequence[int] | None,
    num_tokens: int | None,
    said: str,
) -> None:
    with pytest.raises(LayoutMismatch, match=said):
        make_dump(np.zeros(shape), find_layout(layout), known, table, num_tokens)
