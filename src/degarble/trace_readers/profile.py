"""What a profile says about a KV cache: order of launches, grids, copies and counters; never an address or a slot.

A profile is summed up as it is read, in bounded memory: counts, times, grids and counters by kernel name, and the launches
of each engine step that a range names. Overlaps are possibilities, reported as notes: a kernel that reads the cache, or a
copy off the device, that runs on another stream while a kernel writes the cache may read rows that are not there yet
(KC08, KC16).
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from degarble.trace.violation import Journal, Number, Violation
from degarble.trace_readers.interface import ForeignVerdict, TraceReader

MAX_NAMES = 4096
MAX_STEPS = 100_000
MAX_OPEN = 64
"""Writers that may run at one time."""
MAX_SHOWN = 6
WRITER = re.compile(
    r"reshape_and_cache|concat_and_cache|(store|write|append|update|set)_?\w{0,12}(kv|mla)_?\w{0,8}(cache|buffer)|append_paged|"
    r"AppendPaged|kv_?cache_?(write|store|append|update)",
    re.IGNORECASE,
)
READER = re.compile(
    r"flash_?(fwd|attn|attention|infer|mla)|fmha|paged_?attention|Batch(Decode|Prefill)With|unified_attention|"
    r"(decode|extend|prefill)_attention|mla_?\w{0,12}(decode|fwd)|attention\w{0,24}kernel",
    re.IGNORECASE,
)
ONE_BLOCK_A_TOKEN = re.compile(r"reshape_and_cache|concat_and_cache_mla")
"""vLLM launches these with as many thread blocks as tokens (csrc/cache_kernels.cu)."""
STEP = re.compile(r"\bstep[\s=:#_-]{0,3}(\d{1,12})\b", re.IGNORECASE)
COUNTERS = {
    "l1tex__t_sector_hit_rate.pct": "L1 hit rate %",
    "L1/TEX Hit Rate": "L1 hit rate %",
    "lts__t_sector_hit_rate.pct": "L2 hit rate %",
    "L2 Hit Rate": "L2 hit rate %",
    "dram__bytes_read.sum": "DRAM bytes read",
    "dram__bytes.sum": "DRAM bytes",
    "gpu__time_duration.sum": "duration",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": "useful bytes of loaded sectors %",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": "useful bytes of a loaded 32-byte sector",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": "sectors a load",
}
"""Names that Nsight Compute gives, raw and as sections print them -> words."""


class Launch(msgspec.Struct, kw_only=True):
    """One kernel, copy or memset on the device."""

    record: int
    name: str
    start: int | None = None
    """Nanoseconds."""
    end: int | None = None
    stream: int = 0
    device: int = 0
    grid: tuple[int, int, int] | None = None
    num_bytes: int | None = None
    is_copy: bool = False
    is_from_device: bool = False
    """A copy whose source is device memory."""
    issued: int | None = None
    """When the host asked for it, where the profile says so."""


@dataclass(slots=True)
class KernelSum:
    """All launches of one name."""

    count: int = 0
    total_ns: int = 0
    grids: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    counters: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Words -> sum and number of values."""


@dataclass(slots=True)
class StepRange:
    """One engine step as a range of the profile."""

    name: str
    start: int
    end: int
    launches: list[str] = field(default_factory=list)
    """The first few, in words."""
    num_launches: int = 0
    writer_blocks: list[int] = field(default_factory=list)
    """Thread blocks of each launch that has one for each token."""


@dataclass(slots=True)
class Profile:
    """The sum of a profile."""

    file: str
    journal: Journal = field(default_factory=Journal)
    kernels: dict[str, KernelSum] = field(default_factory=dict)
    steps: list[StepRange] = field(default_factory=list)
    """In the order of their begin."""
    epoch_ns: int | None = None
    """What the profile's 0 is in UTC."""
    num_launches: int = 0
    notes: dict[str, str] = field(default_factory=dict)
    _writers: deque[Launch] = field(default_factory=lambda: deque(maxlen=MAX_OPEN))
    _copies: deque[Launch] = field(default_factory=lambda: deque(maxlen=MAX_OPEN))

    def __post_init__(self) -> None:
        self.journal.file = self.file

    def fail(self, rule: str, record: int, message: str, key: str, *, is_info: bool = False, **numbers: Number) -> None:
        """Write one violation at a record."""
        self.journal.add(
            Violation(
                rule=rule, line=record, message=message, file=self.file, key=key, is_info=is_info, measured=numbers
            )
        )

    def add(self, launch: Launch) -> None:
        """Take in the next launch, in the order of their begin."""
        self.num_launches += 1
        if launch.start is not None and launch.end is not None and launch.end < launch.start:
            message = f"{launch.name[:80]} ends at {launch.end}, before it begins at {launch.start}"
            self.fail("KVC623", launch.record, message, "end")
            return
        if not launch.is_copy:
            self._sum(launch)
        self._overlaps(launch)

    def count(self, name: str, counter: str, value: float) -> None:
        """Take in one counter of one launch."""
        words = COUNTERS.get(counter)
        if words is None or (name not in self.kernels and len(self.kernels) >= MAX_NAMES):
            return
        total, number = self.kernels.setdefault(name, KernelSum()).counters.get(words, (0.0, 0))
        self.kernels[name].counters[words] = (total + value, number + 1)

    def _sum(self, launch: Launch) -> None:
        if launch.name not in self.kernels and len(self.kernels) >= MAX_NAMES:
            self.notes["kernel names"] = f"more than {MAX_NAMES} of them: further ones were not summed up"
            return
        total = self.kernels.setdefault(launch.name, KernelSum())
        total.count += 1
        if launch.start is not None and launch.end is not None:
            total.total_ns += launch.end - launch.start
        if launch.grid is not None and (launch.grid in total.grids or len(total.grids) < MAX_OPEN):
            total.grids[launch.grid] += 1

    def _overlaps(self, launch: Launch) -> None:
        """Notes on what runs beside a writer on another stream of its device."""
        if launch.start is None or launch.end is None:
            return
        is_writer = not launch.is_copy and WRITER.search(launch.name) is not None
        is_reader = launch.is_from_device if launch.is_copy else READER.search(launch.name) is not None
        others = self._copies if is_writer else self._writers if is_reader else ()
        for other in others:
            is_beside = other.device == launch.device and other.stream != launch.stream
            if is_beside and other.end is not None and other.end > launch.start:
                self._note(launch, other)
                break
        if is_writer:
            self._writers.append(launch)
        elif is_reader:
            self._copies.append(launch)

    def _note(self, late: Launch, early: Launch) -> None:
        assert early.end is not None and late.start is not None
        self.fail(
            "KVC617",
            late.record,
            f"{late.name[:80]} begins on stream {late.stream} while {early.name[:80]} runs on stream {early.stream}, for "
            f"another {early.end - late.start} ns: the profile shows no addresses, so this is a possibility, not a fault",
            f"{early.name[:60]} beside {late.name[:60]}",
            is_info=True,
            overlap_ns=early.end - late.start,
        )

    def set_steps(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Ranges whose text names a step; they are looked up by time."""
        for text, start, end in ranges:
            found = STEP.search(text)
            if found and end >= start:
                if len(self.steps) >= MAX_STEPS:
                    self.notes["step ranges"] = f"more than {MAX_STEPS} of them: further ones were not read"
                    break
                self.steps.append(StepRange(found[1], start, end))
        self.steps.sort(key=lambda step: step.start)

    def told(self) -> str:
        """The profile in one sentence or two: what is measured and has no bound."""
        if not self.num_launches and not self.kernels:
            return "it holds no launches"
        writers = [name for name in self.kernels if WRITER.search(name)]
        readers = [name for name in self.kernels if READER.search(name) and name not in writers]
        parts = [
            f"{self.num_launches:,} launches of {len(self.kernels):,} kernels, {len(writers)} of which write a KV cache "
            f"and {len(readers)} read one"
        ]
        parts += [self._one(name) for name in (*writers, *readers)[:MAX_SHOWN]]
        return "; ".join(parts)

    def _one(self, name: str) -> str:
        total = self.kernels[name]
        grids = ", ".join(f"{count:,} × {list(grid)}" for grid, count in total.grids.most_common(3))
        counted = ", ".join(f"{words} {value / number:.4g}" for words, (value, number) in total.counters.items())
        time = f", {total.total_ns / max(1, total.count):,.0f} ns each" if total.total_ns else ""
        return (
            f"{name[:60]}: {total.count:,} times{time}"
            + (f", grids {grids}" if grids else "")
            + (f", {counted}" if counted else "")
        )


@dataclass(slots=True, kw_only=True)
class ProfileVerdict(ForeignVerdict):
    """The verdict on a profile, and the profile."""

    profile: Profile


class ProfileReader(TraceReader):
    """What readers of profiles share."""

    is_profile: ClassVar[bool] = True
    judged: ClassVar[Mapping[str, str]] = {
        "KVC617": "kernels and copies that overlap, as possibilities",
        "KVC623": "times and records",
    }
    lacks: ClassVar[str] = "they carry no addresses, slots, block tables, positions or requests"

    def finished(self, profile: Profile, num_records: int) -> ProfileVerdict:
        """The verdict after the last record."""
        unjudged = self.limits() | {f"measured by {profile.file}": profile.told()} | profile.notes
        return ProfileVerdict(
            violations=sorted(profile.journal.violations, key=lambda violation: violation.line),
            further=dict(profile.journal.further),
            num_events=profile.num_launches,
            num_lines=num_records,
            kinds=frozenset({"step", "xfer"}),
            judged=frozenset(self.judged),
            why=self.why(),
            unjudged=unjudged,
            profile=profile,
        )
