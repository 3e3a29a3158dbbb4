"""Evidence from a KV-cache declaration: `degarble kv lint` gives one; a checkpoint has none."""

from __future__ import annotations

from collections.abc import Sequence

from degarble.checkpoint.interface import Source
from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides
from degarble.kvcache.declaration import AllocationRecord, KVDeclaration, PoisonRecord, WritePath, parse_declaration

KV_DECLARATION = "kv-declaration"
"""Kind of a source that is one."""


@provides("cache_declaration")
def cache_declaration(source: Source) -> KVDeclaration:
    """The declaration, parsed."""
    if source.kind != KV_DECLARATION:
        raise EvidenceMissing("no KV-cache declaration given")
    (name,) = source.files()
    return parse_declaration(source.read(name), name)


@provides("cache_file")
def cache_file(source: Source) -> str:
    """Name of the file that holds it."""
    if source.kind != KV_DECLARATION:
        raise EvidenceMissing("no KV-cache declaration given")
    return next(iter(source.files()))


@provides("cache_allocations")
def cache_allocations(cache_declaration: KVDeclaration) -> Sequence[AllocationRecord]:
    """What a checked allocator recorded."""
    if cache_declaration.allocations is None:
        raise EvidenceMissing("the declaration lists no allocations")
    return cache_declaration.allocations


@provides("cache_isolation")
def cache_isolation(cache_declaration: KVDeclaration) -> KVDeclaration:
    """A declaration with a policy and the sequences it should hold for."""
    if cache_declaration.isolation is None or not cache_declaration.sequences:
        raise EvidenceMissing("the declaration names no isolation policy, or no sequences")
    return cache_declaration


@provides("cache_access")
def cache_access(cache_declaration: KVDeclaration) -> KVDeclaration:
    """A declaration that says how kernels read."""
    if not cache_declaration.access:
        raise EvidenceMissing("the declaration describes no access")
    return cache_declaration


@provides("cache_poison")
def cache_poison(cache_declaration: KVDeclaration) -> Sequence[PoisonRecord]:
    """Runs with and without poison in unused rows."""
    if not cache_declaration.poison:
        raise EvidenceMissing("the declaration has no runs with poisoned rows")
    return cache_declaration.poison


@provides("cache_paths")
def cache_paths(cache_declaration: KVDeclaration) -> Sequence[WritePath]:
    """How each path quantises what it writes."""
    if not cache_declaration.paths:
        raise EvidenceMissing("the declaration describes no paths that write a quantised cache")
    return cache_declaration.paths
