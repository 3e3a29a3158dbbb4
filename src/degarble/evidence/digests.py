"""Evidence about whole files: digests that came with them, and those of the bytes that are there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from degarble.checkpoint.digest_manifest import MAX_MANIFEST_BYTES, is_manifest, read_manifest
from degarble.checkpoint.interface import Source
from degarble.errors import EvidenceMissing, TargetError
from degarble.evidence.store import Coverage, provides
from degarble.registry import Level

WEIGHT_SUFFIXES = (".safetensors", ".gguf")
CHUNK_BYTES = 4 << 20
MAX_THREADS = 4


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """A sha256 that someone vouches for."""

    sha256: str
    origin: str
    """Who says so, for messages: `the hub`, or the name of a manifest."""


@provides("digests")
def digests(source: Source) -> Mapping[str, Digest]:
    """Weight file -> the digest at hand. The hub's own record goes before a list in the folder."""
    found: dict[str, Digest] = {}
    files = source.files()
    for manifest in sorted(name for name in files if is_manifest(name) and files[name] <= MAX_MANIFEST_BYTES):
        for name, sha256 in read_manifest(source.read(manifest), manifest).items():
            found[name] = Digest(sha256=sha256, origin=manifest)
    for name, sha256 in source.digests().items():
        found[name] = Digest(sha256=sha256, origin="the hub")
    found = {name: digest for name, digest in found.items() if name in files and name.endswith(WEIGHT_SUFFIXES)}
    if not found:
        raise EvidenceMissing("no digest at hand: no hub record and no checksum list")
    return found


@provides("measured_digests", level=Level.CONTENT)
def measured_digests(source: Source, digests: Mapping[str, Digest], coverage: Coverage) -> Mapping[str, str]:
    """The sha256 of each file that has a digest at hand, the largest first so that no thread is left with it alone."""
    if source.kind == "hub":
        raise EvidenceMissing("the files are at the hub, which is where the digests come from")
    files = source.files()
    order = sorted(digests, key=lambda name: -files[name])
    with ThreadPoolExecutor(max_workers=min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        results = dict(zip(order, pool.map(lambda name: _sha256(source, name), order), strict=True))
    for name, result in results.items():
        if isinstance(result, TargetError):
            coverage.add(name, str(result))
    return {name: result for name, result in results.items() if isinstance(result, str)}


def _sha256(source: Source, name: str) -> str | TargetError:
    """Streamed: memory is bounded by a chunk for each thread."""
    path = getattr(source, "local_path", None)
    try:
        if path is not None:
            with open(path(name), "rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha256()
        for start in range(0, source.files()[name], CHUNK_BYTES):
            digest.update(source.read(name, start, CHUNK_BYTES))
        return digest.hexdigest()
    except (OSError, TargetError) as error:
        return TargetError(f"could not be hashed: {error}")
