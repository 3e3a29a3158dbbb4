"""CKP110: the shards of one model were not written by one export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from degarble.architectures.canonical import text_prefix
from degarble.evidence.modules import Modules
from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check

FETCH = Fix(id="fetch-file", safe=False)
HALVES = frozenset({"F16", "BF16"})
KINDS = frozenset({"linear", "norm", "embedding", "head", "router"})

Signature = dict[tuple[str, str, str], frozenset[str]]
"""(kind of module, format, role) -> dtypes, for one shard."""


@check("CKP110", severity=Severity.WARNING, symptom_of=("CKP105",))
def companion_in_other_revision(shards: Mapping[str, Shard], modules: Modules | None = None) -> Iterator[Finding]:
    """The shards of one model disagree in their stamp, spelling or dtypes, as if from two exports.

    ## What it looks for
    Three things that one writer does alike in all files: the `format` stamp in the metadata, how the names of decoder
    layers begin (`model.layers.` or `language_model.model.layers.`), and the dtype of each role (norm, plain linear,
    scale). A shard is reported if it differs from the other shards as a whole.

    ## Why output turns to garbage
    After a partial upload, a resumed download of a moved branch or a copy over an older folder, some shards are of
    another export. Each is valid alone; together, weights of one run are multiplied by scales, or stand beside norms,
    of another.

    ## What you will see
    A refusal for the stamp ("does not contain the valid metadata"), missing parameters for the spelling; for the dtypes
    a model that loads without a word and is wrong in a block of layers.

    ## How to tell it from its look-alikes
    Mixed precision within an export (some layers in BF16, FP32 routers or norms) appears as another format or inside
    one shard, and is not reported. GGUF files describe themselves in one place and are not compared.

    ## How to confirm
    Compare the time stamps and, in a hub cache, the revision of the files; compare the sha256 with the hub's.

    ## How to repair it
    Fetch all shards of one revision. Nothing in the folder tells which shard is the stranger, so it is not safe
    unattended.

    ## References
    Neph0s/CoSER#3 (old and new shards together)
    """
    headers = {file: shard.header for file, shard in shards.items() if shard.header is not None}
    if len(headers) < 2:
        return
    stamps = {file: header.metadata.get("format", "") for file, header in headers.items()}
    for file, stamp, usual in _odd_ones(stamps):
        yield Finding(
            location=Location(file=file, key="__metadata__.format"),
            message=f"{file} is stamped {stamp[:40]!r}, the other shards {usual[:40]!r}: of another tool or export",
            fold="stamp",
            fix=FETCH,
        )
    styles = {file: style for file, header in headers.items() if (style := _style(header.tensors)) is not None}
    for file, style, usual in _odd_ones(styles):
        yield Finding(
            location=Location(file=file),
            message=f"{file} spells decoder layers {style + 'layers.'!r}, the other shards {usual + 'layers.'!r}: "
            "no loader maps both",
            severity=Severity.ERROR,
            places=(Location(file=file), Location()),
            fix=FETCH,
        )
    if modules is not None:
        yield from _dtypes(modules, list(headers))


def _odd_ones(values: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(file, its value, the usual value) for files that differ from the majority, or from the first of two."""
    if len(set(values.values())) < 2:
        return []
    usual = Counter(values.values()).most_common(1)[0][0]
    return [(file, value, usual) for file, value in values.items() if value != usual]


MAX_NAMES = 64
"""A shard spells all its layers alike; the first names tell."""


def _style(names: Mapping[str, object]) -> str | None:
    """How this shard spells `model.`; None if it holds no decoder layer."""
    first = list(islice(names, MAX_NAMES))
    model = text_prefix(first).model
    return model if any(name.startswith(model + "layers.") for name in first) else None


def _dtypes(modules: Modules, files: list[str]) -> Iterator[Finding]:
    signatures = _signatures(modules)
    present = [file for file in files if file in signatures]
    usual: Signature = {}
    for key in {key for file in present for key in signatures[file]}:
        votes = Counter(signatures[file][key] for file in present if key in signatures[file])
        usual[key] = votes.most_common(1)[0][0]
    for file in present:
        odd = {key: dtypes for key, dtypes in signatures[file].items() if dtypes.isdisjoint(usual[key])}
        shared = [key for key in signatures[file] if sum(key in signatures[other] for other in present) > 1]
        halves = any(len(dtypes | usual[key]) == 2 and dtypes | usual[key] == HALVES for key, dtypes in odd.items())
        if odd and len(odd) == len(shared) and (halves or len(odd) > 1):
            (kind, _, role), dtypes = next(iter(odd.items()))
            yield Finding(
                location=Location(file=file),
                message=f"{file} stores the {role} of {kind} modules as {', '.join(sorted(dtypes))}, the other shards "
                f"as {', '.join(sorted(usual[kind, _, role]))}: of another export",
                measured={"roles_that_differ": len(odd)},
                bound={"roles_that_differ": 0},
                fold="dtype",
                fix=FETCH,
            )


def _signatures(modules: Modules) -> dict[str, Signature]:
    """What each shard stores, judged once for every distinct set of headers."""
    found: dict[str, dict[tuple[str, str, str], set[str]]] = {}
    for example, members in modules.classes():
        if example.kind not in KINDS:
            continue
        for role, suffix in example.form.roles.items():
            key = (example.kind, example.form.format, role)
            for file in {member.parts[suffix].file for member in members}:
                found.setdefault(file, {}).setdefault(key, set()).add(example.parts[suffix].dtype)
    return {file: {key: frozenset(dtypes) for key, dtypes in roles.items()} for file, roles in found.items()}
