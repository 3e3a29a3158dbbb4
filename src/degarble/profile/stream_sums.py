"""All that a stream of codes is summed to, by compiled loops where they were loaded, else by look-ups."""

from __future__ import annotations

import msgspec

from degarble.checkpoint.tensor_data import Array
from degarble.profile.code_stream import CodeStream
from degarble.profile.code_sums import Ends, ends_of
from degarble.profile.group_sums import GroupSums, group_sums
from degarble.profile.kernels import Kernels
from degarble.profile.scratch import Scratch
from degarble.profile.unit_counts import Spill, histogram, spill_of_stream, unit_counts
from degarble.profile.value_sums import Moments, moments_of


class StreamSums(msgspec.Struct, frozen=True):
    """Of some outputs."""

    groups: GroupSums
    histogram: Array
    """[levels]"""
    spill: Spill | None
    """None where the stream is not the stored words of 4-bit codes."""


def stream_sums(stream: CodeStream, size: int, scratch: Scratch, kernels: Kernels | None) -> StreamSums | None:
    """Sums over groups of `size` codes; None where half groups are no whole units."""
    has_words = stream.is_stored and stream.num_bits == 4
    if kernels is not None:
        found = kernels.sums(stream, size)
        return None if found is None else StreamSums(*found, spill=kernels.spill(stream) if has_words else None)
    indices = scratch.indices(stream)
    groups = group_sums(stream, indices, size, scratch)
    if groups is None:
        return None
    counts = unit_counts(indices)
    return StreamSums(groups, histogram(counts, stream), spill_of_stream(counts, stream) if has_words else None)


def group_facts(
    stream: CodeStream, groups: GroupSums, scales: Array, around: Array, kernels: Kernels | None
) -> tuple[Ends, Moments] | None:
    """Scales [outputs, groups], zero points the same or [1, 1]; None where a value may be no finite float32 number."""
    if kernels is not None:
        return kernels.facts(stream, groups, scales, around)
    moments = moments_of(stream, groups, scales, around)
    return None if moments is None else (ends_of(groups), moments)
