"""A comparison that is killed in the middle goes on from its last layer and says what an undisturbed one says."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from degarble.report.interface import Report
from degarble_engine import comparison
from degarble_engine.comparison import Question
from tests.degarble_engine.test_compare import Candidate
from tests.degarble_engine.tiny_models import folder

SCRIPT = """
import os, signal, sys
from pathlib import Path
from degarble_engine import comparison

def watch(done, total):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

target, reference, state = sys.argv[1:]
comparison.compare(target, reference, comparison.Question(state=Path(state), progress=watch))
"""


@pytest.mark.slow
def test_a_killed_comparison_goes_on(tmp_path: Path) -> None:
    one = Candidate("llama")
    one.change("model.layers.1.mlp.up_proj", lambda values: values * 0.8)
    one.change("model.layers.3.self_attn.v_proj", lambda values: values * 1.3)
    one.work.save(tmp_path / "bad")
    target, reference, state = tmp_path / "bad", folder("llama"), tmp_path / "state"
    whole = compared(target, reference, Question())
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(target), str(reference), str(state)], check=False)
    assert done.returncode == -signal.SIGKILL
    layers: list[int] = []
    again = compared(target, reference, Question(state=state, progress=lambda at, _: layers.append(at)))
    assert layers == [2, 3, 4]
    assert again.comparison == whole.comparison
    assert [one.as_dict() for one in again.findings[0].all_places] == [
        one.as_dict() for one in whole.findings[0].all_places
    ]
    assert [one.message for one in again.findings] == [one.message for one in whole.findings]


def compared(target: Path, reference: Path, question: Question) -> Report:
    found: Report = comparison.compare(str(target), str(reference), question)
    return found
