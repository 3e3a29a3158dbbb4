"""Logs of SGLang's kv-canary: what its kernels found when they compared cache slots with what was written there.

The canary keeps token, position and a chained hash beside every slot (and optionally a hash of the real bytes), and
verifies them on the GPU. Its log has one line for each violation, statistics every so many steps, and an error where its
kernels do not run. Formats: sglang/srt/kv_canary/runner/{violation_reporter,health}.py; an older one-line form and the
indented form before it are read too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import ClassVar

from degarble.errors import TargetError
from degarble.trace.violation import Journal, Number, Violation
from degarble.trace_readers.interface import ForeignVerdict, TraceReader
from degarble.trace_readers.lines import TooLong, read_lines

MAX_SEARCHED_LINES = 200_000
"""Lines of a server's log in which the canary must have said something."""
MAX_BODY_LINES = 12
MARK = re.compile(rb"kv[_-]canary|\[canary\] step=")
VIOLATION = re.compile(r"kv[_-]canary violation:")
FIELD = re.compile(r"(\w+)\s*[=:]\s*([^\s,()]+)")
STATISTICS = re.compile(r"\[canary\] step=(\d+) protected_tokens=(\d+) sweep_passes=(\d+) violations=(\d+)")
NOT_RUNNING = re.compile(r"kernel_run_counter is zero after warmup for tags=\[([^\]]*)\]")
REAL_DATA = re.compile(r"kv_canary_real_data\W{1,3}(none|off|partial|all)")
OVERFLOW = re.compile(r"total_violations=(\d+) ring_overflow=True")
RULES = {
    "real_kv_hash": ("KVC618", "its bytes are not those that were written"),
    "write_position": ("KVC607", "it is written with another position than the scheduler planned"),
    "chain_hash": ("KVC606", "what was written before it is another text"),
    "position": ("KVC606", "it holds another position than its request reads there"),
    "write_token": ("KVC606", "it is written with another token than the scheduler planned"),
    "verify_token": ("KVC606", "it holds another token than its request has there"),
}
"""Reason -> rule and sentence, the most telling last: a slot that another request wrote breaks several at once."""
OLD_REASONS = {"hash": "chain_hash", "input_token_mismatch": "write_token", "token": "verify_token"}


@dataclass(slots=True)
class _Log:
    """What the log said so far."""

    journal: Journal = field(default_factory=Journal)
    num_violations: int = 0
    num_lines: int = 0
    told_violations: int = 0
    protected_tokens: int = 0
    last_step: int | None = None
    real_data: str | None = None
    unjudged: dict[str, str] = field(default_factory=dict)
    is_seen: bool = False


class CanaryReader(TraceReader):
    """Reads server logs with canary lines in them."""

    name: ClassVar[str] = "sglang-canary"
    title: ClassVar[str] = "Lines of kv-canary"
    judged: ClassVar[Mapping[str, str]] = {
        "KVC606": "slots that a forward or a sweep verified",
        "KVC618": "slots whose real bytes are hashed (--kv-canary-real-data)",
        "KVC623": "the canary ran, and told what it found",
    }
    lacks: ClassVar[str] = "they carry no block tables, reference counts, hits, steps or request names"

    def recognises(self, head: bytes, path: str) -> bool:
        """By a canary's line among the first of a text file."""
        if b"\0" in head or head.lstrip()[:1] == b"{":
            return False
        for number, line in read_lines(path):
            if isinstance(line, bytes) and MARK.search(line):
                return True
            if number > MAX_SEARCHED_LINES:
                return False
        return False

    def read(self, path: str) -> ForeignVerdict:
        """Every violation, and whether the canary ran at all."""
        log = _Log()
        log.journal.file = PurePath(path).name
        body: list[str] = []
        start = 0
        for number, raw in read_lines(path):
            log.num_lines += 1
            if isinstance(raw, TooLong):
                log.unjudged[f"line {number}"] = f"longer than {raw.num_bytes_at_least} bytes, not read"
                continue
            line = raw.decode("utf-8", "replace")
            if body and (not line.startswith(" ") or len(body) > MAX_BODY_LINES):
                _violation(log, start, "\n".join(body))
                body = []
            if VIOLATION.search(line):
                log.is_seen = True
                start, body = number, [VIOLATION.split(line, maxsplit=1)[1]]
                if "slot_idx" in line:
                    _violation(log, start, body.pop())
            elif body:
                body.append(line)
            else:
                _other(log, number, line)
        if body:
            _violation(log, start, "\n".join(body))
        if not log.is_seen:
            raise TargetError(f"{path}: no log of kv-canary: none of its {log.num_lines} lines is one of the canary's")
        return self._finished(log)

    def _finished(self, log: _Log) -> ForeignVerdict:
        verdict = self.verdict()
        judged = {"KVC623"}
        if log.last_step is None:
            log.unjudged["whether the canary ran"] = (
                "no line of statistics (SGLANG_KV_CANARY_STATS_PRINT_EVERY_N_STEPS)"
            )
        elif not log.protected_tokens:
            log.unjudged["whether the canary ran"] = f"at step {log.last_step} it had verified no token"
        else:
            judged.add("KVC606")
        if "KVC606" not in judged:
            verdict.unjudged.pop("KVC606", None)
        if log.real_data in ("partial", "all") and "KVC606" in judged:
            judged.add("KVC618")
        else:
            log.unjudged["KVC618"] = (
                "the log does not say that real bytes were hashed (--kv-canary-real-data partial or all)"
            )
        if log.told_violations > log.num_violations:
            log.unjudged["violations that are not in the log"] = f"{log.told_violations - log.num_violations:,}"
        verdict.judged = frozenset(judged)
        verdict.violations = sorted(log.journal.violations, key=lambda violation: violation.line)
        verdict.further = dict(log.journal.further)
        verdict.num_lines = log.num_lines
        verdict.num_events = log.num_violations
        verdict.kinds = frozenset({"crc", "fwd"})
        verdict.unjudged |= log.unjudged
        return verdict


def _other(log: _Log, number: int, line: str) -> None:
    """A line that tells of no violation."""
    if found := STATISTICS.search(line):
        log.is_seen = True
        step, tokens, _, violations = (int(one) for one in found.groups())
        log.last_step, log.protected_tokens = step, max(log.protected_tokens, tokens)
        log.told_violations = max(log.told_violations, violations)
    elif found := NOT_RUNNING.search(line):
        log.is_seen = True
        message = f"the canary's kernels {found[1][:120]} do not run: nothing was verified by them"
        log.journal.add(Violation(rule="KVC623", line=number, message=message, file=log.journal.file, key="canary"))
    elif found := OVERFLOW.search(line):
        log.told_violations = max(log.told_violations, int(found[1]))
    if found := REAL_DATA.search(line):
        log.is_seen = True
        log.real_data = found[1]


def _violation(log: _Log, number: int, text: str) -> None:
    fields: dict[str, str] = {}
    for name, value in FIELD.findall(text):
        fields.setdefault(name, value)
    log.num_violations += 1
    told = [one.lower() for one in fields.get("fail_reason", "").split("+")]
    reasons = [OLD_REASONS.get(one, one) for one in told]
    known = [reason for reason in RULES if reason in reasons]
    slot = _integer(fields.get("slot_idx"))
    tag = (
        fields.get("launch_tag") or fields.get("kind") or fields.get("canary_kind") or fields.get("kernel_kind") or "?"
    )
    if not known or slot is None:
        shown = fields.get("fail_reason", "none")[:60]
        message = f"a violation of the canary that this version cannot read (fail_reason {shown}, slot {slot})"
        log.journal.add(
            Violation(rule="KVC623", line=number, message=message, file=log.journal.file, key=f"line {number}")
        )
        return
    rule, sentence = RULES[known[-1]]
    others = f" (also {', '.join(known[:-1])})" if len(known) > 1 else ""
    measured, bound = _tokens(fields) if known[-1].endswith("_token") else ({}, {})
    log.journal.add(
        Violation(
            rule=rule,
            line=number,
            message=f"slot {slot}, verified by {tag[:40]}: {sentence}{others}",
            file=log.journal.file,
            slot=slot,
            position=_integer(fields.get("position")),
            request=fields.get("req_id", "")[:40] or None,
            key=f"slot {slot}",
            measured=measured,
            bound=bound,
        )
    )


def _tokens(fields: Mapping[str, str]) -> tuple[dict[str, Number], dict[str, Number]]:
    """The token that is there and the one that should be."""
    found = _integer(fields.get("stored_token", fields.get("token_id")))
    expected = _integer(fields.get("expected_token"))
    return ({"token_id": found}, {"token_id": expected}) if None not in (found, expected) else ({}, {})


def _integer(text: str | None) -> int | None:
    found = re.match(r"(?:actual=)?(-?\d{1,18})$", text or "")
    return int(found[1]) if found else None
