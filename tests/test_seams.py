"""The costs that CONTRIBUTING promises: a check is two files, found by walking, with no list to edit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from degarble.registry import SECTIONS

PAGE = "\n\n    ".join(f"## {title}\n    Made up for this test." for title in SECTIONS.values())

CHECK = f'''
"""CKP199."""

from collections.abc import Iterator, Mapping

from degarble.evidence.weights import Shard
from degarble.finding import Finding, Location
from degarble.registry import Severity, check


@check("CKP199", severity=Severity.WARNING)
def shard_empty(shards: Mapping[str, Shard]) -> Iterator[Finding]:
    """A weight file holds no tensor at all.

    {PAGE}
    """
    for shard in shards.values():
        if shard.problem is None and not shard.tensors:
            yield Finding(location=Location(file=shard.file), message=f"{{shard.file}} holds no tensor")
'''

FAULT = '''
"""Plants CKP199."""

from degarble.faults.interface import Patient, fault
from degarble.finding import Location


@fault("CKP199")
def shard_empty(patient: Patient) -> Location:
    """Add an empty shard beside the others."""
    patient.workspace.write("extra.safetensors", (2).to_bytes(8, "little") + b"{}")
    return Location(file="extra.safetensors")
'''

DRIVER = """
import sys
import degarble.checks.container, degarble.faults
degarble.checks.container.__path__.append(sys.argv[1])
degarble.faults.__path__.append(sys.argv[2])
from degarble.demo import demonstrate
shown = demonstrate(None, "shard-empty")
assert any(cause.finding.rule == "CKP199" for cause in shown.after.causes), shown.after.findings
assert not any(cause.finding.rule == "CKP199" for cause in shown.before.causes)
"""


def test_a_check_and_its_fault_are_two_files(tmp_path: Path) -> None:
    for folder, text in (("checks", CHECK), ("faults", FAULT)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "shard_empty.py").write_text(textwrap.dedent(text))
    arguments = [sys.executable, "-c", DRIVER, str(tmp_path / "checks"), str(tmp_path / "faults")]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
