"""Everything that was asked and answered: the evidence of the rules on endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.probe.contact import Contact
from degarble.probe.desk import Desk
from degarble.probe.exchange import Answer, Exchange
from degarble.probe.interface import Probe, probes

MAX_QUOTED = 60
REFERENCE_PROBE = "answers"
"""The probe that is also asked of the reference."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What the model's own tokenizer says of the probes' prompts."""

    counts: Mapping[str, int]
    """`kind prompt` -> tokens, with what the tokenizer or the template puts in front."""
    special_texts: tuple[str, ...] = ()
    num_ids: int | None = None


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint, and the same questions to its reference where there is one."""

    contact: Contact
    exchanges: tuple[Exchange, ...]
    reference: tuple[Exchange, ...] | None = None
    expected: Expected | None = None
    is_redacted: bool = False

    def of(self, probe: str, group: str | None = None) -> list[tuple[Exchange, Answer]]:
        """Answers of one probe. Raises EvidenceMissing, or EvidenceUnjudged after trouble, where there are none."""
        asked = [one for one in self.exchanges if one.probe == probe and group in (None, one.group)]
        found = [(one, one.answer) for one in asked if one.answer is not None]
        if not found:
            first = next(iter(asked), None)
            reason = (
                f"the probe {probe!r} got no answer: {first.failure}" if first else f"the probe {probe!r} was not run"
            )
            raise EvidenceMissing(reason) if first is None or first.is_refused else EvidenceUnjudged(reason)
        return found

    def all_answers(self) -> list[tuple[Exchange, Answer]]:
        """Of every probe. Raises EvidenceUnjudged if there are none."""
        found = [(one, one.answer) for one in self.exchanges if one.answer is not None]
        if not found:
            raise EvidenceUnjudged("no probe got an answer")
        return found

    def quote(self, text: str) -> str:
        """A piece of an answer for a report, unless contents are to be left out."""
        if self.is_redacted:
            return f"({len(text)} characters, left out)"
        return repr(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…")

    def troubles(self) -> Mapping[str, str]:
        """What was asked and could not be judged, by probe."""
        found: dict[str, list[str]] = {}
        for one in self.exchanges:
            if one.failure is not None and not one.is_refused:
                found.setdefault(one.probe, []).append(f"{one.label}: {one.failure}")
        return {f"probe {probe}": f"{len(said)} without an answer; {said[0]}" for probe, said in found.items()}


def run_probes(desk: Desk, chosen: Sequence[Probe] | None = None) -> tuple[Exchange, ...]:
    """Ask everything, in order.."""
    found: list[Exchange] = []
    for probe in probes() if chosen is None else chosen:
        found += probe.run(desk)
    return tuple(found)


def reference_probes() -> list[Probe]:
    """Those that a reference is asked."""
    return [probe for probe in probes() if probe.name == REFERENCE_PROBE]
