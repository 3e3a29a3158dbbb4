"""A trace and profiles of the same run, joined by step: by the NVTX range that names it, else by UTC time.

What the join shows: whether the kernels that write the cache were launched for as many tokens as the step's forwards have, and
which kernels ran in the step that a violation belongs to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import msgspec

from degarble.trace.replay import Verdict
from degarble.trace.violation import Violation
from degarble.trace_readers.interface import ForeignVerdict
from degarble.trace_readers.lines import TooLong, read_lines
from degarble.trace_readers.profile import MAX_STEPS, ProfileVerdict, StepRange

EPOCH_NS = 10**18
"""Times since 1970 in nanoseconds are beyond it."""


class _Line(msgspec.Struct):
    """The fields of a line that the join needs."""

    ev: str = ""
    n: int = 0
    ts: int | None = None
    step: int | str | None = None
    ph: str = ""
    pos: tuple[int, int] | None = None


_decoder = msgspec.json.Decoder(_Line)


@dataclass(slots=True)
class TraceStep:
    """One step of the trace."""

    name: str
    begin: int
    """Counter of its B."""
    ts: int | None
    num_tokens: int = 0
    num_forwards: int = 0


def join(verdict: Verdict, paths: Sequence[str], profiles: Sequence[tuple[str, ForeignVerdict]]) -> Verdict:
    """The trace's verdict with what the profiles add."""
    steps = list(_steps(paths))
    joined = replace(verdict, violations=list(verdict.violations), unjudged=dict(verdict.unjudged))
    for path, one in profiles:
        if not isinstance(one, ProfileVerdict):
            continue
        found, how = _matched(steps, one)
        joined.unjudged[f"the profile {path}"] = f"{how}; measured, not judged: {one.profile.told()}"
        joined.unjudged |= one.profile.notes
        joined.violations = [_told(violation, steps, found) for violation in joined.violations]
        joined.violations += [*one.violations, *_blocks(found, PurePath(paths[0]).name)]
    joined.violations.sort(key=lambda violation: violation.line)
    return joined


def _steps(paths: Sequence[str]) -> Iterator[TraceStep]:
    """Steps of the traces, in order."""
    for path in paths:
        step: TraceStep | None = None
        count = 0
        for _, line in read_lines(path):
            if isinstance(line, TooLong) or (b'"step"' not in line and b'"fwd"' not in line):
                continue
            try:
                event = _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
                continue
            if event.ev == "step" and event.ph == "B" and count < MAX_STEPS:
                if step is not None:
                    yield step
                step = TraceStep(str(event.step), event.n, event.ts)
                count += 1
            elif event.ev == "fwd" and step is not None and event.pos is not None:
                step.num_tokens += max(0, event.pos[1] - event.pos[0])
                step.num_forwards += 1
        if step is not None:
            yield step


def _matched(steps: Sequence[TraceStep], one: ProfileVerdict) -> tuple[dict[int, tuple[TraceStep, StepRange]], str]:
    """Counter of a step's begin -> the step and its range; and how they were matched."""
    ranges = {step.name: step for step in one.profile.steps}
    found = {step.begin: (step, ranges[step.name]) for step in steps if step.name in ranges}
    if found:
        return found, f"{len(found):,} of {len(steps):,} steps are named by an NVTX range"
    epoch = one.profile.epoch_ns
    timed = [step for step in steps if step.ts is not None and step.ts > EPOCH_NS]
    if epoch is None or not timed or not one.profile.steps:
        return {}, f"none of {len(steps):,} steps is named by an NVTX range (`step N`), and times share no clock"
    starts = [step.start for step in one.profile.steps]
    for step in timed:
        assert step.ts is not None
        index = bisect_right(starts, step.ts - epoch) - 1
        if index >= 0 and step.ts - epoch <= one.profile.steps[index].end:
            found[step.begin] = (step, one.profile.steps[index])
    return found, f"{len(found):,} of {len(steps):,} steps lie in a range of the profile by UTC time"


def _told(violation: Violation, steps: Sequence[TraceStep], found: dict[int, tuple[TraceStep, StepRange]]) -> Violation:
    """A violation with the kernels of its step."""
    index = bisect_right([step.begin for step in steps], violation.line) - 1
    pair = found.get(steps[index].begin) if index >= 0 else None
    if pair is None or not pair[1].launches:
        return violation
    step, kernels = pair
    more = kernels.num_launches - len(kernels.launches)
    shown = ", ".join(kernels.launches) + (f" and {more:,} more" if more else "")
    return replace(violation, message=f"{violation.message}; step {step.name} launched {shown}")


def _blocks(found: dict[int, tuple[TraceStep, StepRange]], file: str) -> Iterator[Violation]:
    """Launches with fewer or more thread blocks than the step has tokens to write."""
    for begin, (step, kernels) in found.items():
        if not step.num_forwards:
            continue
        fewest, most = min(kernels.writer_blocks, default=None), max(kernels.writer_blocks, default=None)
        if fewest is None or most is None or fewest == most == step.num_tokens:
            continue
        is_short = fewest < step.num_tokens
        told = (
            f"{fewest} thread blocks, one for each token, write the cache in step {step.name}, whose forwards have "
            f"{step.num_tokens} tokens: rows are not written"
            if is_short
            else f"{most} thread blocks write the cache in step {step.name} for {step.num_tokens} tokens: "
            f"{most - step.num_tokens} are padding rows, which must write the pad slot only"
        )
        yield Violation(
            rule="KVC626" if is_short else "KVC603",
            line=begin,
            message=told,
            file=file,
            key=f"step {step.name}" if is_short else "padding",
            measured={"thread_blocks": fewest if is_short else most},
            bound={"tokens": step.num_tokens},
            is_likely=is_short,
            is_info=not is_short,
        )
