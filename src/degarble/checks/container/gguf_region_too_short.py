"""CKP106: a GGUF tensor has less room in the file than its type and shape take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checks.container.tensor_places import tensor_place
from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix
from degarble.registry import check

REQUANTIZE = Fix(id="requantize", safe=False)


@check("CKP106", symptom_of=("CKP105",))
def gguf_region_too_short(shards: Mapping[str, Shard]) -> Iterator[Finding]:
    """A GGUF tensor's region is shorter than its type and shape need, or does not start on the alignment.

    ## What it looks for
    Tensors in the order of their offsets: from one start to the next there must be room for the bytes of (type, shape),
    and each offset must be a multiple of `general.alignment` (32 where it is not given). The finding counts the rows
    that lie inside the neighbour, and for stacked experts names the expert they belong to.

    ## Why output turns to garbage
    The reader trusts type and shape, so it reads the last rows of the tensor out of the next tensor's bytes. Nothing
    fails: codes of another tensor are as good codes as any. This happens where a writer reserves bytes with a formula
    that misses something of the type, such as a scale for each row.

    ## What you will see
    Answers that are a little or badly wrong depending on how many rows are lost; with stacked experts only prompts that
    reach the last expert go wrong. A current llama.cpp refuses a file whose offsets do not add up.

    ## How to tell it from its look-alikes
    A file that ends too early is CKP101. Regions that are longer than needed are padding and legal. A type id that is
    not known has no size, and its region is not judged.

    ## How to confirm
    Compute rows × bytes of a row for the named tensor and compare with the difference of the two offsets.

    ## How to repair it
    Quantise again with a writer that sizes the type correctly. The bytes were never written, so nothing can be repaired
    in place.

    ## References
    ikawrakow/ik_llama.cpp#2437
    """
    for shard in shards.values():
        if shard.gguf is not None:
            yield from _short_regions(shard.gguf)
            yield from _misaligned(shard.gguf)


def _short_regions(gguf: GgufFile) -> Iterator[Finding]:
    ordered = sorted(gguf.tensors.values(), key=lambda info: (info.start, info.nbytes))
    for info, following in pairwise(ordered):
        room = following.start - info.start
        if room < info.nbytes and not (_is_off(info, gguf) or _is_off(following, gguf)):
            rows, last = _lost_rows(info, info.nbytes - room)
            yield Finding(
                location=tensor_place(info.name, info.file),
                message=f"{info.name} ({info.dtype.removeprefix('GGUF:')} {list(info.shape)}) has {room:,} bytes "
                f"before {following.name} begins and needs {info.nbytes:,}: {last}",
                measured={"region_bytes": room, "rows_in_neighbour": rows},
                bound={"region_bytes": info.nbytes},
                fix=REQUANTIZE,
                fold=f"short in {gguf.file}",
            )


def _is_off(info: TensorInfo, gguf: GgufFile) -> bool:
    """Whether the tensor starts off the alignment, which is then the fault."""
    return (info.start - gguf.data_start) % gguf.alignment != 0


def _lost_rows(info: TensorInfo, short: int) -> tuple[int, str]:
    """How many rows are not the tensor's own, and words for which."""
    total = num_elements(info.shape[:-1])
    if total <= 0 or info.nbytes < total:
        return 0, f"its last {short:,} bytes belong to the neighbour"
    rows = min(total, -(-short * total // info.nbytes))
    per_expert = info.shape[-2] if len(info.shape) >= 3 else total
    expert = f" of expert {total // per_expert - 1}" if per_expert and per_expert < total else ""
    return rows, f"its last {rows:,} of {total:,} rows{expert} are read out of the neighbour"


def _misaligned(gguf: GgufFile) -> Iterator[Finding]:
    for info in gguf.tensors.values():
        offset = info.start - gguf.data_start
        if _is_off(info, gguf):
            yield Finding(
                location=tensor_place(info.name, info.file),
                message=f"{info.name} starts at offset {offset:,}, no multiple of the alignment {gguf.alignment}",
                measured={"remainder": offset % gguf.alignment},
                bound={"remainder": 0},
                fix=REQUANTIZE,
                fold=f"misaligned in {gguf.file}",
            )
