"""Evidence from a KV-cache declaration: `degarble kv lint` gives one; a checkpoint has none."""

from __future__ import annotations

from collections.abc import Sequence

from degarble.checkpoint.interface import Source
from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides
from degarble.kvcache.declaration import AllocationRecord, KVDeclaration, PoisonRecord, WritePath, parse_declaration

KV_DECLARATION = "kv-declaration"
"""Kind of a source that is one."""


@provides("kv_declaration")
def kv_declaration(source: Source) -> KVDeclaration:
    """The declaration, parsed."""
    if source.kind != KV_DECLARATION:
        raise EvidenceMissing("no KV-cache declaration given")
    (name,) = source.files()
    return parse_declaration(source.read(name), name)


@provides("kv_file")
def kv_file(source: Source) -> str:
    """Name of the file that holds it."""
    if source.kind != KV_DECLARATION:
        raise EvidenceMissing("no KV-cache declaration given")
    return next(iter(source.files()))


@provides("kv_allocations")
def kv_allocations(kv_declaration: KVDeclaration) -> Sequence[AllocationRecord]:
    """What a checked allocator recorded."""
    if kv_declaration.allocations is None:
        raise EvidenceMissing("the declaration lists no allocations")
    return kv_declaration.allocations


@provides("kv_isolation")
def kv_isolation(kv_declaration: KVDeclaration) -> KVDeclaration:
    """A declaration with a policy and the sequences it should hold for."""
    if kv_declaration.isolation is None or not kv_declaration.sequences:
        raise EvidenceMissing("the declaration names no isolation policy, or no sequences")
    return kv_declaration


@provides("kv_access")
def kv_access(kv_declaration: KVDeclaration) -> KVDeclaration:
    """A declaration that says how kernels read."""
    if not kv_declaration.access:
        raise EvidenceMissing("the declaration describes no access")
    return kv_declaration


@provides("kv_poison")
def kv_poison(kv_declaration: KVDeclaration) -> Sequence[PoisonRecord]:
    """Runs with and without poison in unused rows."""
    if not kv_declaration.poison:
        raise EvidenceMissing("the declaration has no runs with poisoned rows")
    return kv_declaration.poison


@provides("kv_paths")
def kv_paths(kv_declaration: KVDeclaration) -> Sequence[WritePath]:
    """How each path quantises what it writes."""
    if not kv_declaration.paths:
        raise EvidenceMissing("the declaration describes no paths that write a quantised cache")
    return kv_declaration.paths
