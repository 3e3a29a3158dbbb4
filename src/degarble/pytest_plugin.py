"""A pytest fixture that checks a checkpoint: installed with degarble, loaded by pytest through its entry point.

def test_the_export_is_sound(degarble_check):
    degarble_check("out/model", reference="models/source", fail_on="warning")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from degarble.report.interface import Report


class DegarbleCheck(Protocol):
    """What the fixture gives."""

    def __call__(self, path: str | os.PathLike[str], *, fail_on: str = "error", **options: Any) -> Report:
        """Check `path` with the options of `degarble.check`; the test fails with the report unless it is clean."""


@pytest.fixture(scope="session")
def degarble_check() -> DegarbleCheck:
    """Check a checkpoint; a finding at or above `fail_on` fails the test, and so does a target that cannot be read."""

    def check(path: str | os.PathLike[str], *, fail_on: str = "error", **options: Any) -> Report:
        __tracebackhide__ = True
        from degarble.api import check as run
        from degarble.errors import UsageError
        from degarble.report.interface import FAIL_ON
        from degarble.report.text import render

        if fail_on not in FAIL_ON:
            raise UsageError(f"fail_on={fail_on!r}: one of {', '.join(FAIL_ON)}")
        report = run(path, **options)
        if report.exit_code(fail_on):
            pytest.fail(render(report), pytrace=False)
        return report

    return check
