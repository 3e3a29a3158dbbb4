"""Faults of engines that are already known, matched against a checkpoint and its deployment (ENG703).

An issue is listed only if every one of its conditions is positively met. It must have a condition beside the format,
or a version range that the user's engine is known to lie in: a list that greets every GPTQ file would be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from degarble.engines.issue_conditions import holds, problem_of
from degarble.engines.table import BadTable, read_table
from degarble.engines.version_range import check_range, in_range, parse_version

TABLE = "known_issues.toml"
SCHEMA = 1

_LINK = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_RULE = re.compile(r"[A-Z]{3}[1-9]\d\d\Z")
_WIDE = frozenset({"formats", "moe"})
"""Facts too common to single out a checkpoint by themselves."""


class KnownIssue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault of one engine, in our own words."""

    id: str
    engine: str
    versions: str = ""
    """Range of affected versions; empty if it is not known."""
    fixed_in: str = ""
    """First version without the fault; empty if there is none or it is not known."""
    when: dict[str, Any] = {}
    """Conditions by fact, see `issue_conditions`."""
    rule: str
    """The rule whose subject it is."""
    title: str
    consequence: str
    """What the user sees."""
    way_out: str
    link: str
    evidence: Literal["merged fix", "maintainer word", "reporter"]

    @property
    def is_specific(self) -> bool:
        """Whether its conditions single out a checkpoint without the engine's version."""
        return bool(self.when.keys() - _WIDE)

    def covers(self, version: str | None) -> bool | None:
        """Whether the fault is in `version`; None if that cannot be told."""
        if version is None or parse_version(version) is None:
            return None
        if self.fixed_in and in_range(version, f">={self.fixed_in}"):
            return False
        return in_range(version, self.versions) if self.versions else None

    @property
    def standing(self) -> str:
        """Whether there is a remedy, as one phrase for a message."""
        if self.fixed_in:
            return f"fixed in {self.fixed_in}"
        return "fixed upstream, release not known" if self.evidence == "merged fix" else "not known to be fixed"


class KnownIssues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list, and the day on which it was last checked against its links."""

    schema: int
    date: str
    issue: tuple[KnownIssue, ...]

    def matching(
        self, facts: Mapping[str, object], engine: str | None = None, version: str | None = None
    ) -> list[KnownIssue]:
        """Issues that the facts meet, for one engine (in one version) or for all engines.

        A version counts only with an engine. An issue that is fixed is listed all the same if the version is not known.
        """
        found = []
        for issue in self.issue:
            if engine is not None and issue.engine != engine:
                continue
            covered = issue.covers(version if engine is not None else None)
            if covered is False or (covered is None and not issue.is_specific):
                continue
            if all(holds(wanted, facts.get(fact)) for fact, wanted in issue.when.items()):
                found.append(issue)
        return found


def load_known_issues(path: Path | None = None) -> KnownIssues:
    """Read the shipped list, or the one at `path`. Raises BadTable (a ValueError) with file, key, expected, found."""
    issues = read_table(KnownIssues, TABLE, path)
    file = str(path) if path else TABLE
    if issues.schema != SCHEMA:
        raise BadTable(file, "schema", str(SCHEMA), str(issues.schema))
    if not _DATE.match(issues.date):
        raise BadTable(file, "date", "YYYY-MM-DD", issues.date)
    seen: set[str] = set()
    for number, issue in enumerate(issues.issue):
        _check_issue(issue, file, f"issue[{number}]")
        if issue.id in seen:
            raise BadTable(file, f"issue[{number}].id", "an id used once", issue.id)
        seen.add(issue.id)
    return issues


def _check_issue(issue: KnownIssue, file: str, place: str) -> None:
    """Raise BadTable for what types alone do not show."""
    for key in ("id", "engine", "title", "consequence", "way_out"):
        if not getattr(issue, key).strip():
            raise BadTable(file, f"{place}.{key}", "some text", "nothing")
    if not _LINK.match(issue.link):
        raise BadTable(file, f"{place}.link", "https://github.com/ORG/REPO/issues/N or …/pull/N", issue.link)
    if not _RULE.match(issue.rule):
        raise BadTable(file, f"{place}.rule", "a rule id such as QNT107", issue.rule)
    if issue.fixed_in and parse_version(issue.fixed_in) is None:
        raise BadTable(file, f"{place}.fixed_in", "a version", issue.fixed_in)
    try:
        check_range(issue.versions)
    except ValueError as error:
        raise BadTable(file, f"{place}.versions", "a version range such as '>=1.2,<1.4'", str(error)) from None
    for fact, wanted in issue.when.items():
        if problem := problem_of(fact, wanted):
            raise BadTable(file, f"{place}.when.{fact}", *problem)
    if not issue.is_specific and not issue.versions:
        raise BadTable(file, f"{place}.when", "a condition beside the format, or a version range", str(issue.when))
