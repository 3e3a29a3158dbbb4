"""Whatever a finding names, copied from the reference: tensors, config keys, files."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checkpoint.index import MODEL_INDEX
from degarble.evidence.weights import Shard
from degarble.finding import Location
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.fixes.reference import Reference
from degarble.fixes.restore_files import restore_file
from degarble.fixes.restore_keys import restore_keys
from degarble.fixes.restore_tensors import restore_kv_scales, restore_layers, restore_tensors
from degarble.fixes.restore_text import TEXT_FILES, mirror, require_same_vocabulary, restore_vocabulary
from degarble.registry import rules

TEXT_RULES = ("TOK", "TPL")

WITH_CONFIG = frozenset({"QNT103", "QNT108", "QNT110", "QNT120", "WGT208"})
"""Rules about a module and the config's word on it: one alone does not mend it."""

LAYER_RULES = frozenset({"WGT227"})
"""Rules about modules of a layer that belong together: the named one may be the one that is right."""

WHOLE_FILE = "fetch-file"
"""The fix of findings about a file of which a part cannot be had alone."""

KV_RULES = frozenset({"QNT117"})
"""Rules about all scales of the KV cache together."""


@repair(
    "calibrate-activations",
    "calibrate-experts",
    "calibrate-kv-cache",
    "copy-config-key",
    "copy-module",
    "copy-norm",
    "copy-tokenizer-from-original",
    "copy-tokenizer-from-reference",
    "export-tensor",
    "fetch-chat-template",
    "fetch-file",
    "fetch-tokenizer-files",
    "fold-consumer",
    "one-form-for-all-experts",
    "quantize-again",
    "requantize",
    "requantize-experts",
    "requantize-from-reference",
    "requantize-module",
    "resize-embedding",
    "restore-companion",
    "restore-config",
    "restore-from-reference",
    "restore-module",
    "restore-parameter",
    "restore-plain-weight",
    "restore-rope-settings",
)
def restore_from_reference(job: Job) -> None:
    """Copy what the finding names from the reference, byte for byte.

    ## What it changes
    Keys of a config that the finding names get the reference's values, modules the reference's tensors (all parts of a
    module together), broken files are replaced as a whole.

    ## Why there is one answer
    The copy is exact, and before it is made the reference is proven to be of the same export: modules that are not in
    question, or what is left of a cut file, must be equal byte for byte. A reference of another run is refused.

    ## What it cannot do
    Nothing without `--reference`: lost bytes cannot be computed. A reference that is the unquantised source gives back
    its plain parts (norms, embeddings, routers) where nothing was folded into them, and no codes: the module then has
    to be quantised again.
    """
    if job.reference is None:
        raise needs_origin(job)
    try:
        _restore(job, job.reference)
    except CannotRepair as refusal:
        raise CannotRepair(refusal.reason, refusal.fetch or needs_origin(job).fetch) from None


def _restore(job: Job, reference: Reference) -> None:
    """Keys, files and tensors of the finding. Raises CannotRepair."""
    places = list(dict.fromkeys(job.places))
    if job.finding.rule.startswith(TEXT_RULES) and job.evidence.find("gguf") is None:
        _restore_text(job, reference, places)
        return
    keys = [place for place in places if is_key(place)]
    restore_keys(job, reference, keys)
    if not job.edits:
        _restore_bytes(job, reference, [place for place in places if not is_key(place)])
    if not job.edits or job.finding.rule in WITH_CONFIG:
        _restore_tensors_of(job, reference, keys)
    if job.finding.rule in WITH_CONFIG and (declaration := job.evidence.find("declaration")) is not None:
        restore_keys(job, reference, [Location(file=declaration.file, key=declaration.key)])
    if not job.edits:
        raise CannotRepair("the reference has the same there")


def _restore_text(job: Job, reference: Reference, places: list[Location]) -> None:
    """The named files and keys; all text files if those are the reference's; the embedding if its rows are not."""
    if restore_vocabulary(job, reference):
        return
    require_same_vocabulary(job, reference)
    mirror(job, reference, [place.file for place in places if place.file in TEXT_FILES])
    restore_keys(job, reference, [place for place in places if is_key(place) and place.file not in TEXT_FILES])
    if not job.edits:
        mirror(job, reference, TEXT_FILES)
    if not job.edits:
        raise CannotRepair("the reference has the same text files")


def _restore_tensors_of(job: Job, reference: Reference, keys: list[Location]) -> None:
    """The key is what the reference has: then what it promises is not stored."""
    named = [place for place in keys if place.module and place.module in job.modules]
    if named:
        restore_tensors(job, reference, named)
    layers = {place.layer for place in keys if place.layer is not None and not place.module}
    if layers:
        restore_layers(job, reference, layers)
    if job.finding.rule in KV_RULES:
        restore_kv_scales(job, reference)


def needs_origin(job: Job) -> CannotRepair:
    """The exception of a repair that has no reference: the rule's own advice, and what to fetch."""
    rule = rules().get(job.finding.rule)
    text = " ".join(rule.section("repair").split()) if rule is not None else "it has to be restored from its origin"
    if job.finding.fix is not None and job.finding.fix.id == WHOLE_FILE:
        return job.cannot(text, files=[place.file for place in job.places if place.file])
    tensors = [*_lost_companions(job)] or [place.tensor for place in job.places if place.tensor and not is_key(place)]
    files = [place.file for place in job.places if place.file and not (place.tensor or place.key or is_key(place))]
    if not tensors and not files:
        files = [f"{place.file} (for {place.key})" for place in job.places if place.file and place.key]
    return job.cannot(text, tensors, files)


def _lost_companions(job: Job) -> Iterator[str]:
    """A finding about a missing companion points at the payload, which is there."""
    roles = job.finding.measured.get("missing_companions")
    if isinstance(roles, list):
        for module in job.modules_at_places():
            lost = [role for role in roles if isinstance(role, str) and module.part(role) is None]
            yield from map(module.name_of, lost)


def is_key(place: Location) -> bool:
    """Whether a place is a key of a config or of GGUF metadata rather than bytes."""
    if not place.key or not place.file or place.file == MODEL_INDEX or place.file.endswith(".safetensors"):
        return False
    return place.file.endswith(".json") or not (place.tensor or place.module)


def _restore_bytes(job: Job, reference: Reference, places: list[Location]) -> None:
    named = [place for place in places if place.tensor or place.module]
    broken = set(_broken_files(job))
    files = [place.file for place in places if place.file and (place.file in broken or place not in named)]
    for name in dict.fromkeys(file for file in files if file in broken or file not in job.workspace.files()):
        restore_file(job, reference, name)
    if job.edits:
        return
    layers = {place.layer for place in places if place.layer is not None and place not in named}
    if layers:
        restore_layers(job, reference, layers)
    if named:
        restore_tensors(job, reference, named)
        _strike_phantoms(job, reference, named)
    if named and not job.edits and job.finding.rule in LAYER_RULES:
        chosen = {place.layer for place in named}
        beside = [module.place() for module in job.modules.values() if module.layer in chosen]
        restore_tensors(job, reference, beside)
    for name in dict.fromkeys(files) if not (named or layers) else ():
        restore_file(job, reference, name)


def _strike_phantoms(job: Job, reference: Reference, places: list[Location]) -> None:
    """Entries of the index for tensors that nobody holds, the reference included."""
    mine, theirs = (evidence.find("tensors") or {} for evidence in (job.evidence, reference.evidence))
    for place in places:
        if place.file == MODEL_INDEX and place.tensor and place.tensor not in mine and place.tensor not in theirs:
            job.drop_key(MODEL_INDEX, f"weight_map.{place.tensor}", "not in the reference")


def _broken_files(job: Job) -> list[str]:
    """Weight files from which tensors cannot be read one by one."""
    shards = job.evidence.find("shards") or {}
    sizes = job.evidence.get("source").files()
    return [name for name, shard in shards.items() if _is_broken(shard, sizes[name])]


def _is_broken(shard: Shard, size: int) -> bool:
    """An unreadable or contradictory header, a cut file, or tensors that overlap."""
    described = shard.header or shard.gguf
    if described is None or described.problems:
        return True
    ordered = sorted(shard.tensors.values(), key=lambda info: info.start)
    ends = [*(info.start for info in ordered[1:]), size]
    alignment = shard.gguf.alignment if shard.gguf is not None else 1
    start = shard.gguf.data_start if shard.gguf is not None else 0
    return any(info.end > end or (info.start - start) % alignment for info, end in zip(ordered, ends, strict=True))
