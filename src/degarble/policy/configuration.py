"""Options from files, environment and command line, each with the place it came from.

A flag beats an environment variable, that beats degarble.toml, that beats [tool.degarble] in pyproject.toml, and all of them
beat the default. Files are looked for in the working directory and above, up to the first folder that has one, a
repository's root at most. An unknown key or rule is an error: a gate that is misspelt must not stay open.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from degarble.errors import UsageError
from degarble.finding import Severity
from degarble.policy.baseline import read_baseline
from degarble.policy.policy import Policy, Range
from degarble.policy.waivers import read_waivers

FILE, PROJECT_FILE, TABLE = "degarble.toml", "pyproject.toml", "degarble"
ENVIRONMENT = "DEGARBLE_"


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One key that may be configured."""

    name: str
    """As in TOML and, after `--`, on the command line."""
    kind: type
    default: object
    help: str


OPTIONS = (
    Option(name="select", kind=list, default=(), help="only these rules, by id or prefix"),
    Option(name="ignore", kind=list, default=(), help="not these rules"),
    Option(name="level", kind=str, default=None, help="header or content"),
    Option(name="engine", kind=str, default=None, help="judge for one engine, NAME[@VERSION]"),
    Option(name="tp", kind=int, default=None, help="tensor-parallel degree"),
    Option(name="ep", kind=int, default=None, help="expert-parallel degree"),
    Option(name="dtype", kind=str, default=None, help="the dtype it is served in"),
    Option(name="known-issues", kind=str, default=None, help="a newer known-issues file"),
    Option(name="cache", kind=str, default=None, help="folder that keeps value profiles"),
    Option(name="fail-on", kind=str, default="error", help="error, warning, info or partial"),
    Option(name="format", kind=str, default="text", help="report format"),
    Option(name="waivers", kind=str, default=None, help="file of waivers"),
    Option(name="baseline", kind=str, default=None, help="file of findings that are known"),
)
BY_NAME = {option.name: option for option in OPTIONS}
RULES = "rules"
"""Table of per-rule settings: `severity` (error, warning, info or off) and `accept` (measured number -> min, max)."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A value in force, and who said so."""

    name: str
    value: Any
    origin: str
    """`--fail-on`, `DEGARBLE_FAIL_ON`, a file's path, or `default`."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Every option with its origin, and what is set for single rules."""

    settings: Mapping[str, Setting]
    rules: Mapping[str, tuple[Mapping[str, Any], str]]
    """Rule -> its table and the file it stands in."""

    def get(self, name: str) -> Any:
        """The value of an option."""
        return self.settings[name].value

    @property
    def switched_off(self) -> tuple[str, ...]:
        """Rules whose severity is `off`."""
        return tuple(rule for rule, (table, _) in self.rules.items() if table.get("severity") == "off")

    def policy(self, rules: Callable[[], Iterable[str]]) -> Policy:
        """What the files decide about findings. Raises UsageError for a rule that is not among `rules`, if one is named."""
        waivers, baseline = self.get("waivers"), self.get("baseline")
        known = frozenset(rules()) if self.rules or waivers else frozenset()
        for rule, (_, origin) in self.rules.items():
            if rule not in known:
                raise UsageError(f"{origin}: {RULES}.{rule}: no such rule: `degarble rules` lists them")
        return Policy(
            severities={
                rule: Severity(table["severity"])
                for rule, (table, _) in self.rules.items()
                if table.get("severity", "off") != "off"
            },
            accepts={
                rule: {name: Range(**limits) for name, limits in table["accept"].items()}
                for rule, (table, _) in self.rules.items()
                if table.get("accept")
            },
            waivers=read_waivers(self._path(waivers, "waivers"), known) if waivers else (),
            baseline=read_baseline(self._path(baseline, "baseline")) if baseline else frozenset(),
        )

    def _path(self, value: str, name: str) -> Path:
        """Relative to the file that names it."""
        origin = Path(self.settings[name].origin)
        return origin.parent / value if origin.suffix == ".toml" else Path(value)


def load_configuration(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    folder: Path,
    file: Path | None = None,
    is_isolated: bool = False,
) -> Configuration:
    """Join all sources. `flags`: options given on the command line, None where not. Raises UsageError."""
    tables = [] if is_isolated else list(_tables(folder, file))
    settings = {option.name: Setting(name=option.name, value=option.default, origin="default") for option in OPTIONS}
    rules: dict[str, tuple[Mapping[str, Any], str]] = {}
    for path, table in tables:
        for key, value in table.items():
            place = f"{path}: {key}"
            if key == RULES:
                rules |= {rule: (one, str(path)) for rule, one in _rule_tables(place, value)}
            elif key in BY_NAME:
                settings[key] = Setting(name=key, value=_typed(place, BY_NAME[key], value), origin=str(path))
            else:
                raise UsageError(f"{place}: no such key; known: {', '.join((*BY_NAME, RULES))}")
    for option in OPTIONS:
        variable = ENVIRONMENT + option.name.replace("-", "_").upper()
        if environment.get(variable):
            value = _from_text(variable, option, environment[variable])
            settings[option.name] = Setting(name=option.name, value=value, origin=variable)
    for name, value in flags.items():
        if value is not None:
            settings[name] = Setting(name=name, value=value, origin=f"--{name}")
    return Configuration(settings=settings, rules=rules)


def _tables(folder: Path, file: Path | None) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The weakest first."""
    if file is not None:
        yield file, _table(file)
        return
    for place in (folder, *folder.parents):
        found = [(path, _table(path)) for name in (PROJECT_FILE, FILE) if (path := place / name).is_file()]
        found = [(path, table) for path, table in found if table or path.name == FILE]
        yield from found
        if found or (place / ".git").exists():
            return


def _table(path: Path) -> Mapping[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    if path.name != PROJECT_FILE:
        return document
    tools = document.get("tool")
    table = tools.get(TABLE, {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.{TABLE}: expected a table")
    return table


def _typed(place: str, option: Option, value: object) -> object:
    if option.kind is list and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if option.kind in (str, int) and type(value) is option.kind:
        return value
    expected = {list: "a list of strings", str: "a string", int: "a whole number"}[option.kind]
    raise UsageError(f"{place}: expected {expected}, found {value!r:.60}")


def _from_text(variable: str, option: Option, text: str) -> object:
    readers: Mapping[type, Callable[[str], object]] = {
        list: lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
        int: int,
        str: str,
    }
    try:
        return readers[option.kind](text)
    except ValueError:
        raise UsageError(f"{variable}: expected a whole number, found {text!r:.40}") from None


def _rule_tables(place: str, value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, dict):
        raise UsageError(f"{place}: expected a table of rules")
    for rule, table in value.items():
        if not isinstance(table, dict) or table.keys() - {"severity", "accept"}:
            raise UsageError(f"{place}.{rule}: expected a table with severity or accept")
        severity = table.get("severity", "off")
        if severity not in (*(one.value for one in Severity), "off"):
            raise UsageError(f"{place}.{rule}.severity: error, warning, info or off; found {severity!r:.40}")
        _check_accept(f"{place}.{rule}.accept", table.get("accept", {}))
        yield rule, table


def _check_accept(place: str, value: object) -> None:
    if not isinstance(value, dict):
        raise UsageError(f"{place}: expected a table: measured number -> min, max")
    for name, limits in value.items():
        is_range = isinstance(limits, dict) and limits and not limits.keys() - {"min", "max"}
        if not is_range or any(type(limit) not in (int, float) for limit in limits.values()):
            raise UsageError(f"{place}.{name}: expected {{ min = …, max = … }}, found {limits!r:.60}")
