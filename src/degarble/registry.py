"""`@check`, and the walk over `degarble.checks` that finds every check: there is no list to edit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cache
from types import FunctionType, ModuleType

import msgspec
from msgspec.structs import replace

from degarble.finding import Confidence, Finding, Severity

CheckFunction = Callable[..., Iterable[Finding]]

SECTIONS = {
    "looks_for": "What it looks for",
    "story": "Why output turns to garbage",
    "predicts": "What you will see",
    "lookalikes": "How to tell it from its look-alikes",
    "confirm": "How to confirm",
    "repair": "How to repair it",
    "references": "References",
}
"""The headings of a rule's page, by the name code uses for them."""

RULE_ID = re.compile(r"(CKP|CFG|QNT|WGT|NUM|TOK|TPL|KVC|ENG|RUN|DIV)[1-9]\d\d\Z")


class Level(StrEnum):
    """What a check must read: headers and small files, tensor bytes, a healthy copy, an engine's trace, a forward pass."""

    HEADER = "header"
    CONTENT = "content"
    REFERENCE = "reference"
    LIVE = "live"
    FORWARD = "forward"


OWN_EVIDENCE = ("trace", "cache_", "forward_pass", "overflow_walk", "probe_")
"""How evidence begins that only one command can have: `trace`, `kv lint` for what a declaration says of a cache, `compare`,
`overflow`, `probe`. Checks that need it are listed by that command and by no other."""


class Need(msgspec.Struct, frozen=True):
    """One evidence a function asks for by parameter name; optional if the parameter has a default."""

    name: str
    optional: bool


def needs_of(function: Callable[..., object]) -> tuple[Need, ...]:
    """What a check or provider asks for, read off its code: `inspect.signature` takes ten times as long for 400 functions."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        raise TypeError(f"{function!r} is not a function")
    code, defaults = plain.__code__, plain.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    first_optional = len(names) - len(defaults)
    return tuple(Need(name, place >= first_optional) for place, name in enumerate(names))


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One decorated function. A rule may have several; they share the rule's id and name."""

    rule: str
    name: str
    function: CheckFunction
    needs: tuple[Need, ...]
    severity: Severity
    confidence: Confidence
    level: Level
    requires: tuple[str, ...]
    symptom_of: tuple[str, ...]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule as users see it: the sum of its checks and the page of the first one."""

    id: str
    name: str
    summary: str
    page: str
    severity: Severity
    level: Level
    checks: tuple[Check, ...]

    @property
    def requires(self) -> frozenset[str]:
        """Rules that must not have failed for this one to run."""
        return frozenset(rule for check in self.checks for rule in check.requires)

    @property
    def symptom_of(self) -> frozenset[str]:
        """Rules whose finding at the same place explains this one."""
        return frozenset(rule for check in self.checks for rule in check.symptom_of)

    def section(self, key: str) -> str:
        """The text under one heading of the page, as a single paragraph block; '' if absent."""
        return self._sections().get(SECTIONS[key], "")

    def _sections(self) -> dict[str, str]:
        parts = re.split(r"^## (.+)$", self.page, flags=re.MULTILINE)
        return {title.strip(): text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def check(
    rule: str,
    *,
    severity: Severity = Severity.ERROR,
    confidence: Confidence = Confidence.PROVEN,
    level: Level = Level.HEADER,
    requires: tuple[str, ...] = (),
    symptom_of: tuple[str, ...] = (),
) -> Callable[[CheckFunction], CheckFunction]:
    """Mark a function as the check of `rule`; its parameters name the evidence it needs."""
    if not RULE_ID.match(rule):
        raise ValueError(f"{rule!r} is not a rule id such as CKP101")

    def mark(function: CheckFunction) -> CheckFunction:
        facts = Check(
            rule=rule,
            name=function.__name__.replace("_", "-"),
            function=function,
            needs=needs_of(function),
            severity=severity,
            confidence=confidence,
            level=level,
            requires=requires,
            symptom_of=symptom_of,
        )
        function.__dict__["degarble_check"] = facts
        return function

    return mark


def walk(package: ModuleType, *, past: Callable[[ModuleType], bool] = lambda _: False) -> Iterator[ModuleType]:
    """Import every module below `package`, in name order, except in packages that are to be gone `past`."""
    for entry in sorted(pkgutil.iter_modules(package.__path__, package.__name__ + "."), key=lambda e: e.name):
        module = importlib.import_module(entry.name)
        yield module
        if entry.ispkg and not past(module):
            yield from walk(module, past=past)


@cache
def rules() -> dict[str, Rule]:
    """Every rule there is, by id. Raises ValueError if two files claim one id."""
    return _rules(walk(importlib.import_module("degarble.checks")))


def _rules(modules: Iterable[ModuleType]) -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for module in modules:
        marked = [fn.__dict__["degarble_check"] for fn in vars(module).values() if _is_check(fn, module)]
        for rule in sorted({facts.rule for facts in marked}):
            if rule in found:
                raise ValueError(f"{rule} is defined in {module.__name__} and elsewhere")
            found[rule] = _rule(rule, [facts for facts in marked if facts.rule == rule])
    return dict(sorted(found.items(), key=lambda item: item[0]))


@cache
def rules_on(evidence: str | None = None) -> dict[str, Rule]:
    """The rules a command can judge: those with a check on its own `evidence`, or (None) on what every target may have.

    A rule that has checks of both kinds keeps those of the command.
    """
    found: dict[str, Rule] = {}
    for rule in (rules() if evidence else _rules_on_checkpoints()).values():
        kept = tuple(facts for facts in rule.checks if _own_evidence(facts) == evidence)
        if kept:
            found[rule.id] = replace(rule, checks=kept)
    return found


def _rules_on_checkpoints() -> dict[str, Rule]:
    """Without the packages that say of themselves that all their rules need other evidence: forty modules less to import."""
    package = importlib.import_module("degarble.checks")
    return _rules(walk(package, past=lambda below: not getattr(below, "ON_CHECKPOINTS", True)))


def _own_evidence(facts: Check) -> str | None:
    return next((own for own in OWN_EVIDENCE for need in facts.needs if need.name.startswith(own)), None)


def _is_check(candidate: object, module: ModuleType) -> bool:
    return (
        inspect.isfunction(candidate)
        and candidate.__module__ == module.__name__
        and "degarble_check" in candidate.__dict__
    )


def _rule(rule: str, checks: list[Check]) -> Rule:
    first = checks[0]
    page = inspect.cleandoc(first.function.__doc__ or "")
    return Rule(
        id=rule,
        name=first.name,
        summary=page.split("\n\n", 1)[0].replace("\n", " "),
        page=page,
        severity=min((facts.severity for facts in checks), key=lambda s: s.rank),
        level=first.level,
        checks=tuple(checks),
    )
