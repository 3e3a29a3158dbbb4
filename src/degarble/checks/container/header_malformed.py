"""CKP105: a header breaks the rules of its own format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from degarble.checkpoint.index import ShardIndex, read_index
from degarble.checkpoint.json_file import JsonFile
from degarble.checks.container.tensor_places import lost_places, tensor_place
from degarble.errors import MalformedFile
from degarble.evidence.weights import Shard
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.formats.gguf_types import GGML_TYPES
from degarble.registry import check

FETCH = Fix(id="fetch-file", safe=False)
CUT = Fix(id="cut-trailing-bytes", safe=False)
BYTE = re.compile(r"byte (\d{1,18})\Z")


@check("CKP105")
def header_malformed(shards: Mapping[str, Shard], index: ShardIndex | None = None) -> Iterator[Finding]:
    """The header of a weight file or the shard index breaks the rules of its own format.

    ## What it looks for
    safetensors: header length in range, a JSON object in UTF-8, known dtypes, offsets in order without overlap or hole,
    shape × dtype equal to the bytes, no name twice, no bytes after the last tensor. GGUF: magic, version, counts and
    lengths that fit the file, value types, known tensor types, whole blocks in a row, no key or name twice, nothing
    after the last tensor. Sizes are checked before anything is read or parsed. The index must be a JSON object with a
    `weight_map`.

    ## Why output turns to garbage
    A header is the only thing that says which bytes are which tensor. Where it overlaps, leaves a hole or gives a size
    that the shape contradicts, a lenient reader takes a tensor from its neighbour's bytes; where it cannot be read, the
    whole file is left out, and some loaders go on without it.

    ## What you will see
    Mostly a refusal: "header is malformed", "metadata incomplete buffer", "invalid magic". Where the reader is lenient,
    noise from the layers of that file.

    ## How to tell it from its look-alikes
    A file that is only too short is CKP101, even if it ends inside its header. A git-lfs pointer, an HTML log-in page
    or a pickle under this name is said by name. A GGUF type that is newer than the table, or of a fork, is a warning:
    its size is not known, so it is not judged.

    ## How to confirm
    Read the first 8 bytes as a little-endian number and look at what follows: it must start with `{`.

    ## How to repair it
    Fetch or write the file again. Headers are not rewritten by guess, so there is no safe automatic repair. A broken
    index alone can be regenerated from the headers. Bytes after the last tensor can be cut off; only a digest tells
    whether that makes the file right.

    ## References
    EricTan7/VeritasPP#2, the README of huggingface/safetensors, docs/gguf.md of ggml-org/ggml
    """
    for shard in shards.values():
        if shard.problem is not None and shard.problem.missing_bytes <= 0:
            yield _unreadable(shard.problem, index)
        problems = shard.header.problems if shard.header is not None else ()
        for problem in problems:
            yield _finding(problem, shard)
        if shard.gguf is not None:
            yield from _gguf(shard)


def _unreadable(problem: MalformedFile, index: ShardIndex | None) -> Finding:
    held = [name for name, file in index.weight_map.items() if file == problem.file] if index is not None else []
    head, *rest = lost_places(problem.file, held)
    match = BYTE.match(problem.place)
    location = Location(file=head.file, byte_offset=int(match[1]) if match else None)
    return Finding(location=location, message=str(problem), places=(location, *rest), fix=FETCH)


def _finding(
    problem: MalformedFile, shard: Shard, severity: Severity | None = None, confidence: Confidence | None = None
) -> Finding:
    match = BYTE.match(problem.place)
    if match:
        location = Location(file=problem.file, byte_offset=int(match[1]))
    elif problem.place == "__metadata__" or (shard.gguf is not None and problem.place not in shard.gguf.tensors):
        location = Location(file=problem.file, key=problem.place)
    else:
        location = tensor_place(problem.place, problem.file)
    return Finding(
        location=location,
        message=str(problem),
        severity=severity,
        confidence=confidence,
        fold=problem.file,
        fix=CUT if problem.expected == "the end of the file" else FETCH,
    )


def _gguf(shard: Shard) -> Iterator[Finding]:
    gguf = shard.gguf
    assert gguf is not None
    newest = max(GGML_TYPES)
    for problem in gguf.problems:
        if problem.expected == "a ggml type that is known" and gguf.type_ids.get(problem.place, 0) > newest:
            yield _finding(problem, shard, Severity.WARNING, Confidence.HINT)
        else:
            yield _finding(problem, shard)
    if gguf.tensors and all(info.nbytes for info in gguf.tensors.values()):
        end = max(info.end for info in gguf.tensors.values())
        padded = end + -(end - gguf.data_start) % gguf.alignment
        if gguf.size > padded:
            extra = f"{gguf.size - padded} further bytes that no tensor claims"
            problem = MalformedFile(gguf.file, f"byte {padded}", "the end of the file", extra)
            yield _finding(problem, shard, Severity.WARNING)


@check("CKP105")
def index_malformed(index_file: JsonFile) -> Iterator[Finding]:
    """An index that is no JSON or has no usable `weight_map`."""
    try:
        read_index(index_file)
    except MalformedFile as problem:
        yield Finding(
            location=Location(file=problem.file, key=problem.place if problem.place[:5] != "byte " else None),
            message=str(problem),
            fix=Fix(id="regenerate-index", safe=True),
        )
