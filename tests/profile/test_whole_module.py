"""`--exhaustive` gives what a module read at once gives: every golden format, and modules made for their edges."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.evidence import Evidence, Settings
from degarble.executor import ThreadExecutor
from degarble.formats import mlx
from degarble.formats.interface import StoredModule
from degarble.formats.packing import pack_words
from degarble.formats.scheme import Scheme
from degarble.formats.slicing import num_outputs, stack_outputs
from degarble.profile import whole_module
from degarble.profile.kernels import Kernels, compiled
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.sample import Batch, is_readable
from degarble.profile.scratch import Scratch
from degarble.profile.value_sums import Place
from degarble.profile.whole_module import profile_whole_modules, streamed_sums
from degarble.target import open_target
from tests.conftest import unpacked_golden
from tests.formats.in_memory import module_of
from tests.formats.integer_modules import awq_parts, gemv_parts, gptq_parts, pack_parts, random_weight, said

FOLDERS = sorted(path.name for path in unpacked_golden().iterdir() if path.is_dir())
SUMMED = ("rms", "mean", "std")
"""Fields of ValueStats that add many numbers up; all others are equal to the last bit."""


def evidence_of(folder: Path) -> Evidence:
    return Evidence(open_target(next(folder.glob("*.gguf"), folder)), Settings())


def assert_equal(whole: ModuleProfile, slow: ModuleProfile) -> None:
    """Codes, scales and places exactly, sums of values to a millionth."""
    assert whole.codes == slow.codes
    assert whole.scales == slow.scales
    assert (whole.dead_rows, whole.num_dead_rows) == (slow.dead_rows, slow.num_dead_rows)
    assert (whole.outputs, whole.num_outputs, whole.num_values) == (slow.outputs, slow.num_outputs, slow.num_values)
    assert whole.reach == (None if slow.reach is None else pytest.approx(slow.reach, rel=1e-12))
    assert whole.values.nonfinite == slow.values.nonfinite
    assert whole.values.absmax == slow.values.absmax
    scale = slow.values.rms
    for name in SUMMED:
        assert getattr(whole.values, name) == pytest.approx(getattr(slow.values, name), rel=1e-6, abs=1e-6 * scale)
    np.testing.assert_allclose(whole.values.log_row_rms, slow.values.log_row_rms, rtol=0, atol=2e-6)
    if not slow.values.nonfinite:
        assert whole.values.median_abs == slow.values.median_abs


@pytest.mark.parametrize("name", FOLDERS)
def test_parts_give_what_the_module_at_once_gives(golden: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_module, "PART_VALUES", 1 << 14)
    monkeypatch.setattr(whole_module, "sampled_outputs", lambda module: ())
    evidence = evidence_of(golden / name)
    modules, tensors = evidence.get("modules"), evidence.get("profiles")
    found = profile_whole_modules(modules.classes(), tensors, ThreadExecutor(2))
    assert found.profiles
    for module in modules.values():
        if is_readable(module):
            slow = Batch([module], ((0, num_outputs(module)),), tensors)()
            if module.name in slow.unread:
                assert module.name in found.unread
            else:
                assert_equal(found.profiles[module.name], slow.profiles[module.name])


def mlx_parts(out: int, columns: int, bits: int, group: int, seed: int) -> dict[str, Array]:
    codes, scales, offsets = mlx.quantize(random_weight(out, columns, seed), bits, group)
    return {"weight": pack_words(codes, bits).view(np.uint32), "scales": scales, "biases": offsets}


@st.composite
def integer_modules(draw: st.DrawFn) -> StoredModule:
    """Every packed layout, width, convention of zero points and order of groups; columns that end inside a group."""
    layout = draw(st.sampled_from(["gptq", "gptq act-order", "awq", "gemv", "symmetric", "asymmetric", "mlx"]))
    seed, group = draw(st.integers(0, 999)), draw(st.sampled_from([32, 64, 128, -1]))
    columns = 128 * draw(st.integers(1, 3)) + draw(st.sampled_from([0, 0, 32, 40]))
    out = 32 * draw(st.integers(1, 3))
    bits = draw(st.sampled_from([2, 3, 4, 8]))
    whole = columns - columns % 128
    if layout.startswith("gptq"):
        v2 = draw(st.booleans())
        parts = gptq_parts(out, whole, bits, group, index=layout != "gptq" or draw(st.booleans()), v2=v2, seed=seed)
        if layout == "gptq act-order":
            parts["g_idx"] = np.random.default_rng(seed).permutation(parts["g_idx"])
        return module_of(parts, said("gptq", bits, group, format="gptq_v2" if v2 else None), (out, whole))
    if layout == "awq":
        return module_of(awq_parts(out, whole, group, seed), said("awq", 4, group), (out, whole))
    if layout == "gemv":
        return module_of(gemv_parts(out, whole, 128, seed), said("awq", 4, 128, format="gemv"), (out, whole))
    if layout == "mlx":
        size = 64 if group < 0 else group
        scheme = Scheme(method="mlx", format="affine", type="int", num_bits=bits, strategy="group", group_size=size)
        return module_of(mlx_parts(out, whole, bits, size, seed), scheme, (out, whole))
    parts = pack_parts(out, columns, bits, group, symmetric=layout == "symmetric", seed=seed)
    return module_of(parts, said("compressed-tensors", bits, group, format="pack-quantized"), (out, columns))


def both_ways(module: StoredModule) -> tuple[ModuleProfile | str, ModuleProfile | str]:
    """Profiles by parts and at once, or why there is none."""
    found = []
    for result in (
        profile_whole_modules([(module, [module])], {}, ThreadExecutor(1)),
        Batch([module], ((0, num_outputs(module)),), {})(),
    ):
        found.append(result.profiles.get(module.name) or result.unread[module.name])
    return found[0], found[1]


@settings(max_examples=80, deadline=None)
@given(module=integer_modules())
def test_packed_integers_of_every_layout(module: StoredModule) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_module, "PART_VALUES", 1 << 12)
        patch.setattr(whole_module, "sampled_outputs", lambda module: ())
        whole, slow = both_ways(module)
    if isinstance(slow, str):
        assert isinstance(whole, str)
    else:
        assert isinstance(whole, ModuleProfile)
        assert_equal(whole, slow)


@settings(max_examples=12, deadline=None)
@given(module=integer_modules())
def test_kernels_change_nothing(module: StoredModule) -> None:
    """Compiled where numba is installed, else as plain Python."""
    results = []
    for kernels in (None, compiled() or Kernels()):
        with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore"):
            patch.setattr(whole_module, "sampled_outputs", lambda module: ())
            patch.setattr(whole_module, "kernels_for", lambda num_values, chosen=kernels: chosen)
            results.append(profile_whole_modules([(module, [module])], {}, ThreadExecutor(1)))
    assert repr(results[0]) == repr(results[1])  # NaN equals itself so


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("layout", ["gptq", "awq", "asymmetric", "mlx"])
def test_the_usual_layouts_are_not_dequantised(layout: str, bits: int) -> None:
    parts = {
        "gptq": lambda: (gptq_parts(64, 256, bits, 64), said("gptq", bits, 64)),
        "awq": lambda: (awq_parts(64, 256, 64), said("awq", 4, 64)),
        "asymmetric": lambda: (
            pack_parts(64, 256, bits, 64, symmetric=False),
            said("compressed-tensors", bits, 64, format="pack-quantized"),
        ),
        "mlx": lambda: (
            mlx_parts(64, 256, bits, 64, 0),
            Scheme(method="mlx", format="affine", type="int", num_bits=bits, strategy="group", group_size=64),
        ),
    }
    module = module_of(*parts[layout](), (64, 256))
    assert streamed_sums(stack_outputs([module], ((0, 32),)), Place(0, 64), Scratch()) is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_scale_that_is_no_number(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = pack_parts(64, 256, 4, 64)
    parts["weight_scale"] = parts["weight_scale"].copy()
    parts["weight_scale"][40, 1] = bad
    module = module_of(parts, said("compressed-tensors", 4, 64, format="pack-quantized"), (64, 256))
    monkeypatch.setattr(whole_module, "PART_VALUES", 1 << 12)
    monkeypatch.setattr(whole_module, "sampled_outputs", lambda module: ())
    whole, slow = both_ways(module)
    assert isinstance(whole, ModuleProfile) and isinstance(slow, ModuleProfile)
    assert whole.codes == slow.codes and whole.scales == slow.scales
    assert whole.values.nonfinite == slow.values.nonfinite > 0
    assert whole.values.rms == pytest.approx(slow.values.rms, rel=1e-6)
    assert whole.values.median_abs == pytest.approx(slow.values.median_abs, rel=0.05)


def test_a_module_that_cannot_be_read_is_named() -> None:
    parts = pack_parts(512, 256, 4, 64)
    module = module_of(parts, said("compressed-tensors", 4, 64, format="pack-quantized"), (512, 256))
    info = module.parts["weight_scale"]
    short = msgspec.structs.replace(info, nbytes=info.nbytes - 2, shape=(511, 4))
    broken = msgspec.structs.replace(module, parts={**module.parts, "weight_scale": short})
    found = profile_whole_modules([(broken, [broken])], {}, ThreadExecutor(2))
    assert set(found.unread) == {"m"} and not found.profiles
