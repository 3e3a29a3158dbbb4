"""What a team accepts is kept, with its reason, by every report and over a saved document."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from xml.etree import ElementTree

import pytest

from degarble.errors import MalformedFile
from degarble.finding import Acceptance
from degarble.policy.policy import WaiverState
from degarble.policy.waivers import Waiver
from degarble.report.interface import Report
from degarble.report.json import document, encoded
from degarble.report.load import load
from degarble.report.writers import formats, writer
from tests.report.samples import finding, report_of
from tests.report.test_sarif import run_of

REASON = "trained that way"
OLD = Waiver(rule="WGT216", scope="model.layers.3.*", reason="see the card", expires=date(2026, 1, 31))
IDLE = Waiver(rule="WGT205", scope="*", reason="never <b>met</b>")


def with_accepted(reason: str = REASON) -> Report:
    """One finding that counts, two that do not, and two waivers that did nothing."""
    waived = replace(finding("WGT216"), accepted=Acceptance(kind="waiver", reason=reason))
    known = replace(finding("WGT205"), accepted=Acceptance(kind="baseline", reason="known"))
    waivers = ((OLD, WaiverState.EXPIRED), (IDLE, WaiverState.UNUSED))
    return report_of(finding(), accepted=(waived, known), waivers=waivers)


def test_a_saved_document_comes_back_whole() -> None:
    report = with_accepted()
    again = load(encoded(document(report)))
    assert document(again) == document(report)
    assert again.accepted[0].accepted == Acceptance(kind="waiver", reason=REASON)
    assert again.waivers == report.waivers
    assert again.accepted[0].fingerprint == report.accepted[0].fingerprint


@pytest.mark.parametrize(
    ("place", "value"),
    [("accepted/0/acceptance/kind", "mood"), ("waivers/0/expires", "soon"), ("waivers/0/state", "maybe")],
)
def test_what_is_wrong_is_named(place: str, value: str) -> None:
    saved = json.loads(encoded(document(with_accepted())))
    inner = saved
    *parents, last = place.split("/")
    for part in parents:
        inner = inner[int(part) if part.isdigit() else part]
    inner[last] = value
    with pytest.raises(MalformedFile, match=parents[0]):
        load(json.dumps(saved).encode())


def test_sarif_suppresses_with_the_reason() -> None:
    run = run_of(with_accepted())
    counted, waived, known = run["results"]
    assert "suppressions" not in counted
    assert waived["suppressions"] == [{"kind": "external", "status": "accepted", "justification": f"waiver: {REASON}"}]
    assert known["suppressions"][0]["justification"] == "baseline: known"
    told = [item["message"]["text"] for item in run["invocations"][0]["toolConfigurationNotifications"]]
    assert any("waiver expired: WGT216" in text and "2026-01-31" in text for text in told)
    assert any("waiver unused: WGT205" in text for text in told)


def test_junit_has_them_as_skipped_cases() -> None:
    root = ElementTree.fromstring(writer("junit")(with_accepted()).encode())
    skipped = {case.get("name", ""): case.find("skipped") for case in root.iter("testcase")}
    (found,) = [item for name, item in skipped.items() if name.startswith("accepted: WGT216")]
    assert found is not None and found.get("message") == REASON


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_readers_are_told(name: str) -> None:
    shown = writer(name)(with_accepted())
    assert "2 findings accepted (1 by waiver, 1 by baseline)" in shown
    assert "expired" in shown and "2026-01-31" in shown.replace("\\", "")
    assert "<b>met</b>" not in shown or name == "text"


@pytest.mark.parametrize("name", sorted(formats()))
def test_a_reason_is_text_from_a_file(name: str) -> None:
    shown = writer(name)(with_accepted("\x1b[31m\u202e<script>alert(1)</script>"))
    assert "\x1b" not in shown
    assert name == "json" or "\u202e" not in shown  # the document is exact
    assert name in ("text", "json", "sarif", "github") or "<script>alert" not in shown
