"""What a check reports: a finding has a place, a number, the bound it broke, and how sure we are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

Scalar = str | int | float | bool | None
Measure = Scalar | list[Scalar]

MAX_ALSO = 20
"""A folded finding lists at most this many further names; `count` has the true number."""


class Severity(StrEnum):
    """How bad the output will be."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return ("error", "warning", "info").index(self.value)


class Confidence(StrEnum):
    """How the finding is known: arithmetic, statistics, or a clue."""

    PROVEN = "proven"
    LIKELY = "likely"
    HINT = "hint"

    @property
    def rank(self) -> int:
        """0 for the surest."""
        return ("proven", "likely", "hint").index(self.value)


class Role(StrEnum):
    """Where diagnosis put the finding."""

    CAUSE = "cause"
    SYMPTOM = "symptom"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The finest place a check can name. All keys are optional; none set means the whole target.

    Names are as they stand in the file: a GGUF tensor keeps its GGUF name.
    """

    file: str | None = None
    key: str | None = None
    tensor: str | None = None
    module: str | None = None
    layer: int | None = None
    expert: int | None = None
    row: int | None = None
    col: int | None = None
    group: int | None = None
    element: int | None = None
    token: str | None = None
    token_id: int | None = None
    byte_offset: int | None = None
    line: int | None = None
    request: str | None = None
    block: int | None = None
    slot: int | None = None
    position: int | None = None

    def as_dict(self) -> dict[str, Scalar]:
        """The keys that are set, in the order of the contract."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}

    def name(self) -> str:
        """The shortest text that leads a person to the place."""
        what = self.tensor or self.module or self.key or self.token
        if what is None and self.layer is not None:
            what = f"layer {self.layer}"
        return ": ".join(part for part in (self.file, what) if part) or "the whole target"

    def short_name(self) -> str:
        """The place without its file, where anything finer is known."""
        return self.tensor or self.module or self.key or self.file or self.name()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Names the repair of part 4 that removes the finding; `safe` means it may run unattended."""

    id: str
    safe: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Why a finding does not count: a team's waiver, its baseline, or a number it accepts."""

    kind: str
    """waiver | baseline | accepted number"""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken rule at one place (or, folded, at many places of one kind).

    Checks fill the upper half; registry, runner and diagnosis fill the lower half.
    """

    location: Location
    message: str
    severity: Severity | None = None
    """None: the rule's default severity."""
    confidence: Confidence | None = None
    measured: Mapping[str, Measure] = field(default_factory=dict)
    bound: Mapping[str, Measure] = field(default_factory=dict)
    fix: Fix | None = None
    predicts: str | None = None
    """What the user will see, where this finding knows better than the rule's page."""
    damage: float = 0.0
    """What the fault alone does to the output, where a command measured it: KL divergence in nats. Ranks causes."""
    fold: str | None = None
    """Findings of one rule with the same fold key become one. None: never folded."""

    id: str = ""
    rule: str = ""
    name: str = ""
    role: Role = Role.CAUSE
    accepted: Acceptance | None = None
    places: tuple[Location, ...] = ()
    """All places of a folded finding, the example first; empty when there is only `location`."""
    saved_fingerprint: str | None = None
    """Of a finding read back from a report, which does not keep what the fingerprint is made of."""

    @property
    def all_places(self) -> tuple[Location, ...]:
        """Every place, folded or not."""
        return self.places or (self.location,)

    @property
    def fingerprint(self) -> str:
        """Stable over runs and over re-quantisation: rule and place, never a measured number."""
        if self.saved_fingerprint is not None:
            return self.saved_fingerprint
        import hashlib  # of OpenSSL, for reports with findings only

        place = self.location
        parts = (self.rule, place.file, place.key, place.module or place.tensor, self.fold)
        text = "\x1f".join(part or "" for part in parts)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def fold(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings that share rule, severity and fold key, keeping the first as the example."""
    heads: dict[tuple[object, ...], list[Finding]] = {}
    order: list[list[Finding]] = []
    for finding in findings:
        if finding.fold is None:
            order.append([finding])
            continue
        key = (finding.rule, finding.fold, finding.severity, finding.confidence, finding.accepted)
        if key not in heads:
            heads[key] = []
            order.append(heads[key])
        heads[key].append(finding)
    return [_joined(group) for group in order]


def _joined(group: list[Finding]) -> Finding:
    head = group[0]
    if len(group) == 1:
        return head
    places = tuple(place for finding in group for place in finding.all_places)
    return replace(head, places=places)
