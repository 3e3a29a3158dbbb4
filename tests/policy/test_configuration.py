"""Where options come from, and that nothing misspelt passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.errors import UsageError
from degarble.finding import Severity
from degarble.policy.configuration import Configuration, load_configuration

RULES = ("CKP101", "WGT216")


def load(folder: Path, environment: dict[str, str] | None = None, **flags: object) -> Configuration:
    """As the command line does."""
    return load_configuration(flags, environment or {}, folder=folder)


def test_precedence(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.degarble]\nfail-on = "info"\ndtype = "float16"\ntp = 2\n')
    (tmp_path / "degarble.toml").write_text('fail-on = "warning"\ntp = 4\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    found = load(inner, {"DEGARBLE_TP": "8", "DEGARBLE_SELECT": "CKP, WGT216"}, level="header")
    rows = {name: (one.value, Path(one.origin).name) for name, one in found.settings.items()}
    assert rows["fail-on"] == ("warning", "degarble.toml")
    assert rows["dtype"] == ("float16", "pyproject.toml")
    assert rows["tp"] == (8, "DEGARBLE_TP")
    assert rows["select"] == (("CKP", "WGT216"), "DEGARBLE_SELECT")
    assert rows["level"] == ("header", "--level")
    assert rows["ep"] == (None, "default")


def test_files_above_a_repository_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "degarble.toml").write_text('fail-on = "info"\n')
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    assert load(tmp_path / "repository").get("fail-on") == "error"
    assert load(tmp_path).get("fail-on") == "info"


def test_rules_become_a_policy(tmp_path: Path) -> None:
    (tmp_path / "degarble.toml").write_text(
        'waivers = "w.toml"\n[rules.WGT216]\nseverity = "warning"\naccept.octaves = { max = 5 }\n'
        '[rules.CKP101]\nseverity = "off"\n'
    )
    (tmp_path / "w.toml").write_text('[[waiver]]\nrule = "CKP101"\nscope = "*"\nreason = "x"\n')
    found = load(tmp_path)
    policy = found.policy(lambda: RULES)
    assert policy.severities == {"WGT216": Severity.WARNING}
    assert 5 in policy.accepts["WGT216"]["octaves"] and 5.1 not in policy.accepts["WGT216"]["octaves"]
    assert found.switched_off == ("CKP101",)
    assert [waiver.rule for waiver in policy.waivers] == ["CKP101"]


@pytest.mark.parametrize(
    "text",
    [
        'fail_on = "error"\n',
        "fail-on = 3\n",
        "select = [1]\n",
        "tp = true\n",
        "rules = 3\n",
        "[rules.WGT216]\nbound = 3\n",
        '[rules.WGT216]\nseverity = "fatal"\n',
        "[rules.WGT216]\nseverity = [1]\n",
        "[rules.WGT216]\naccept.octaves = 5\n",
        "[rules.WGT216]\naccept.octaves = { most = 5 }\n",
        '[rules.WGT999]\nseverity = "off"\n',
        "fail-on = \n",
        'waivers = "absent.toml"\n',
        'baseline = "absent.json"\n',
    ],
)
def test_what_is_misspelt_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "degarble.toml").write_text(text)
    with pytest.raises(UsageError, match=r"degarble\.toml|absent"):
        load(tmp_path).policy(lambda: RULES)


def test_isolated_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "degarble.toml").write_text("nonsense = 1\n")
    assert load_configuration({}, {}, folder=tmp_path, is_isolated=True).get("format") == "text"
