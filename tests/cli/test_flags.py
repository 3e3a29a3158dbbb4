"""Flags of the configuration: in every command that has them, each with its help and its value."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import typer

from degarble.cli import check, fix
from degarble.cli.flags import ConfigurationFlags, with_configuration
from degarble.errors import UsageError

COMMANDS = [check.check, fix.fix]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_every_flag_with_a_help_text(command: object) -> None:
    parameters = inspect.signature(command).parameters  # type: ignore[arg-type]
    assert set(ConfigurationFlags._fields) < set(parameters)
    for name, parameter in parameters.items():
        (option,) = parameter.annotation.__metadata__
        assert option.help, name


def test_a_command_may_say_more_without_changing_the_others() -> None:
    def text(command: object, name: str) -> str:
        return str(inspect.signature(command).parameters[name].annotation.__metadata__[0].help)  # type: ignore[arg-type]

    assert text(check.check, "select") != text(fix.fix, "select")
    assert text(check.check, "tp") == text(fix.fix, "tp")


def test_values_arrive_as_one_object() -> None:
    seen: list[ConfigurationFlags] = []

    @with_configuration(tp="Ranks.")
    def command(name: str, flags: ConfigurationFlags = ConfigurationFlags(), last: bool = False) -> int:  # noqa: B008
        seen.append(flags)
        return int(last)

    given = dict.fromkeys(ConfigurationFlags._fields) | {"tp": 4, "isolated": True}
    assert command(name="x", last=True, **given) == 1
    assert seen == [ConfigurationFlags(tp=4, isolated=True)]
    assert list(inspect.signature(command).parameters)[:2] == ["name", "level"]


def test_flags_go_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "degarble.toml").write_text('tp = 2\nselect = ["CKP101"]\n')
    monkeypatch.chdir(tmp_path)
    loaded = ConfigurationFlags(tp=8, select=["QNT1,CFG110"]).load(cache="profiles")
    assert (loaded.get("tp"), tuple(loaded.get("select")), loaded.get("cache")) == (8, ("QNT1", "CFG110"), "profiles")
    assert ConfigurationFlags().load().get("tp") == 2
    assert ConfigurationFlags(isolated=True).load().get("tp") is None
    with pytest.raises(UsageError):
        ConfigurationFlags(config=tmp_path / "absent.toml").load()


def test_both_run_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        app = typer.Typer()
        app.command()(command)
        with pytest.raises(SystemExit) as ended:
            app(["--help"])
        assert ended.value.code == 0
    assert "--known-issues" in capsys.readouterr().out
