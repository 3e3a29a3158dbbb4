"""Killed at any moment, a repair leaves nothing under its name, or the complete copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import unpacked_golden
from tests.repairing.folders import contents, sick_copy

DRIVER = Path(__file__).parent / "kill_driver.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("moments", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_any_moment(tmp_path: Path, moments: int) -> None:
    golden = unpacked_golden() / "own-sharded-bf16"
    sick = sick_copy("norm-weights-implausible", golden.name, tmp_path / "sick")
    before = contents(sick)
    arguments = [sys.executable, str(DRIVER), str(sick), str(golden), str(tmp_path), str(moments)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=600)
    found = json.loads(done.stdout)
    whole = contents(Path(found["whole"]))
    assert "degarble-fix.json" in whole
    for out in found["outs"]:
        assert out is None or contents(Path(out)) == whole
    assert contents(sick) == before
