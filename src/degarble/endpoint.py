"""The library's call for live endpoints: ask within bounds, judge, and report like every other command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import httpx

from degarble.api import check_evidence
from degarble.checkpoint.interface import Source
from degarble.errors import DegarbleError, TargetError
from degarble.evidence import Evidence, Settings
from degarble.probe.connection import Connection, Limits
from degarble.probe.contact import Contact, make_contact
from degarble.probe.desk import Desk
from degarble.probe.exchange import Exchange
from degarble.probe.expected_counts import expected_of
from degarble.probe.probe_run import Expected, ProbeRun, reference_probes, run_probes
from degarble.registry import rules_on
from degarble.report.interface import Report, Target
from degarble.runner import select
from degarble.target import open_target

OWN_EVIDENCE = "probe_"


class EndpointSource(Source):
    """An endpoint as a target: it has no files."""

    kind: ClassVar[str] = "endpoint"

    def __init__(self, address: str, engine: str) -> None:
        self._path = address
        self.engine = engine

    @property
    def path(self) -> str:
        """Its address, without user and password."""
        return self._path

    def files(self) -> Mapping[str, int]:
        """None."""
        return {}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """There is nothing to read."""
        raise TargetError(f"{self._path}: an endpoint has no file {name!r}")


def probe(
    url: str,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    expected: Expected | None = None,
    reference: str | None = None,
    api_key: str | None = None,
    reference_api_key: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    redact: bool = False,
    select_rules: Sequence[str] = (),
    ignore_rules: Sequence[str] = (),
    transport: httpx.BaseTransport | None = None,
    reference_transport: httpx.BaseTransport | None = None,
) -> Report:
    """Ask an OpenAI-compatible endpoint and judge its answers.

    `tokenizer` is a checkpoint whose tokenizer and template the endpoint is to use (`expected`: what it says, where that is
    known already); `reference` the address of a healthy endpoint that is asked the same. `limits` bound every request and
    all together. `redact` leaves contents of answers out of the report. `transport` answers instead of the network. What is
    wrong with the endpoint is in the report. Raises UsageError for an address that is none and for an unknown rule.
    """
    chosen = [rule.id for rule in select(select_rules, ignore_rules, rules_on(OWN_EVIDENCE))]
    connection = Connection(url, key=api_key, limits=limits, transport=transport)
    other = (
        None
        if reference is None
        else Connection(reference, key=reference_api_key, limits=limits, transport=reference_transport)
    )
    target = Target(path=connection.address, kind=EndpointSource.kind)
    try:
        if tokenizer is not None:
            expected = expected_in(tokenizer)
        contact = make_contact(connection, model)
        exchanges = run_probes(Desk(connection, contact.offer, seed=seed))
        found = None if other is None else _reference(other, seed)
    except TargetError as error:
        return Report(target=target, failure=str(error))
    finally:
        for opened in (connection, other):
            if opened is not None:
                opened.close()
    run = ProbeRun(contact=contact, exchanges=exchanges, reference=found, expected=expected, is_redacted=redact)
    return judge(run, connection.address, chosen)


def judge(run: ProbeRun, address: str, chosen: Sequence[str] | None = None) -> Report:
    """The rules on what was answered already; a recording is judged like a live endpoint."""
    evidence = Evidence(EndpointSource(address, run.contact.engine.shown), Settings())
    evidence.supply("probe_run", run)
    for what, reason in run.troubles().items():
        evidence.coverage.add(what, reason)
    report = check_evidence(evidence, chosen, own_evidence=OWN_EVIDENCE)
    return _named(report, run.contact)


def _named(report: Report, contact: Contact) -> Report:
    """The engine stands where checkpoints have their formats."""
    from dataclasses import replace

    return replace(report, target=replace(report.target, formats=(contact.engine.shown,)))


def _reference(connection: Connection, seed: int) -> tuple[Exchange, ...]:
    contact = make_contact(connection)
    return run_probes(Desk(connection, contact.offer, seed=seed), reference_probes())


def expected_in(target: str) -> Expected:
    """What the tokenizer of a checkpoint says. Raises TargetError where it has none that can be read."""
    evidence = Evidence(open_target(target), Settings())
    try:
        found = evidence.get("tokenizer")
        json_files = evidence.find("json_files") or {}
        config = json_files.get("tokenizer_config.json")
        return expected_of(
            found,
            evidence.find("chat_templates") or (),
            evidence.find("special_token_texts") or {},
            config.value if config is not None and isinstance(config.value, dict) else {},
        )
    except TargetError:
        raise
    except DegarbleError as error:
        raise TargetError(f"--tokenizer {target}: {error}") from None


__all__ = ["EndpointSource", "expected_in", "judge", "probe"]
