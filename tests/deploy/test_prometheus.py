"""The rules of deploy/prometheus: by promtool where it is installed, and by what can be read without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.metric_names import (
    DEPLOY,
    KNOWN,
    ROOT,
    TELEMETRY,
    is_known,
    metrics_of,
    recorded,
    rule_files,
    rules,
    strings_in,
)

FOLDER = DEPLOY / "prometheus"
PROMTOOL = shutil.which("promtool")
ALERTS = [rule for rule in rules() if "alert" in rule]
TESTS: list[dict[str, Any]] = [
    case
    for path in sorted(FOLDER.glob("*.test.yaml"))
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
    for case in group.get("alert_rule_test", [])
]
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("record") or rule["alert"])
def test_every_name_exists(rule: dict[str, Any]) -> None:
    named = metrics_of(rule["expr"])
    assert named
    assert not {name for name in named if not is_known(name, recorded())}


def test_a_name_that_does_not_exist_is_seen() -> None:
    assert not is_known("vllm:gpu_cache_usage_perc", recorded())
    assert metrics_of('sum by (a, b) (rate(vllm:x{c="d"}[5m])) / on (a) group_left () y > 0.5') == {"vllm:x", "y"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_colon_never_stands_alone(rule: dict[str, Any]) -> None:
    """A client that answers OpenMetrics sends an underscore instead."""
    named = metrics_of(rule["expr"]) - recorded()
    assert {name.replace(":", "_") for name in named if ":" in name} <= named


def test_our_names_are_what_the_server_shows() -> None:
    wanted = KNOWN["degarble"]
    assert wanted and set(wanted) <= set(strings_in(TELEMETRY / "metric_table.py"))


def test_every_alert_is_seen_firing_and_silent() -> None:
    fired = {
        (case["alertname"], alert["exp_labels"]["severity"]) for case in TESTS for alert in case["exp_alerts"]
    }  # fmt: skip
    silent = {case["alertname"] for case in TESTS if not case["exp_alerts"]}
    assert fired == {(alert["alert"], alert["labels"]["severity"]) for alert in ALERTS}
    assert silent == {alert["alert"] for alert in ALERTS}


def test_every_alert_says_what_to_do() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert alert["annotations"]["summary"] and alert["annotations"]["runbook"] == "docs/how-to/deploy.md#alerts"
        assert f"`{alert['alert']}`" in page, f"{alert['alert']} has no line in the runbook"


def test_thresholds_of_promises_are_edges_of_our_buckets() -> None:
    if not (TELEMETRY / "metric_table.py").exists():
        pytest.skip("metric_table.py is not there yet")
    table = import_module("degarble_engine.telemetry.metric_table")
    assert {1.0, 60.0} <= set(table.SECONDS)


def test_slo_rules_are_what_the_sloth_spec_gives() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "make_slo_rules.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run scripts/make_slo_rules.py"


@needs_promtool
def test_promtool_reads_the_rules() -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "rules", *rule_files()], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.test.yaml")), ids=lambda path: path.name)
def test_promtool_runs_the_tests(path: Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", path.name], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
