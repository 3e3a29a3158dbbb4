"""`--exhaustive` gives what a module read at once gives: every golden format, and modules made for their edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.evidence import Evidence, Settings
from degarble.executor import ThreadExecutor
from degarble.formats.slicing import num_outputs
from degarble.profile import whole_module
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.sample import Batch, is_readable
from degarble.profile.whole_module import profile_whole_modules
from degarble.target import open_target
from tests.conftest import unpacked_golden

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
