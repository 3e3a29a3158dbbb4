"""Evidence about modules: every tensor grouped into StoredModules, each with the form its headers prove.

Forms are worked out once per distinct set of headers: a checkpoint of 46,000 expert linears has about thirty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import attrgetter

from degarble.architectures.canonical import Prefix, canonical_name, template_of
from degarble.architectures.gguf_names import gguf_canonical
from degarble.architectures.interface import Architecture
from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import TensorReader
from degarble.evidence.store import provides
from degarble.formats.detect import detect
from degarble.formats.interface import Form, StoredModule, WeightFormat
from degarble.formats.scheme import Scheme
from degarble.formats.split import group_by_module
from degarble.formats.split import kv_scales as split_kv_scales
from degarble.methods.interface import Declaration

OTHER_TOWERS = frozenset({"v", "a", "mm", "enc", "dec", "model", "resampler"})
"""First parts of GGUF names that belong to projectors, encoders and vocoders."""

_HEADER = attrgetter("dtype", "shape")

Parts = dict[str, TensorInfo]
PeerClass = tuple[str, Form]
"""Modules that differ only in layer and expert number, and have equal headers."""


class Modules(Mapping[str, StoredModule]):
    """All modules by their name on disk, and grouped into classes of equals."""

    def __init__(self, modules: Mapping[str, StoredModule]) -> None:
        self._modules = dict(modules)
        classes: defaultdict[tuple[str, int], list[StoredModule]] = defaultdict(list)
        for module in self._modules.values():
            classes[module.template, id(module.form)].append(module)
        self._classes = dict(classes)
        self.by_canonical = {module.canonical: module for module in self._modules.values() if module.canonical}

    def __getitem__(self, name: str) -> StoredModule:
        return self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def classes(self) -> Iterator[tuple[StoredModule, list[StoredModule]]]:
        """One example and all members, for every class of modules with equal template and headers."""
        for members in self._classes.values():
            yield members[0], members

    def linears(self) -> Iterator[StoredModule]:
        """Modules that hold a linear weight of the text model, quantised or not."""
        return (module for module in self._modules.values() if module.kind in ("linear", "router", "head"))


@provides("modules_as_declared")
def modules_as_declared(
    groups: Mapping[str, Parts],
    names: Mapping[str, str | None],
    reader: TensorReader,
    architecture: Architecture | None = None,
    declaration: Declaration | None = None,
) -> Modules:
    """All modules, taking every size in the config at its word."""
    return judge_modules(groups, names, reader, architecture, declaration)


def judge_modules(
    groups: Mapping[str, Parts],
    names: Mapping[str, str | None],
    reader: TensorReader,
    architecture: Architecture | None,
    declaration: Declaration | None,
) -> Modules:
    """Judge each distinct set of headers once."""
    lookup = Lookup(architecture, declaration)
    found: dict[str, StoredModule] = {}
    for name, parts in groups.items():
        canonical = names.get(name)
        template, layer, expert = template_of(canonical or name)
        kind, fmt, form = lookup.judge(name, canonical, template, layer, parts)
        found[name] = StoredModule(
            name=name,
            canonical=canonical,
            template=template,
            layer=layer,
            expert=expert,
            kind=kind,
            parts=parts,
            form=form,
            format=fmt,
            reader=reader,
        )
    return Modules(found)


@provides("groups")
def groups(tensors: Mapping[str, TensorInfo]) -> Mapping[str, Parts]:
    """Tensors grouped by module: module -> suffix -> tensor."""
    return group_by_module(tensors)


@provides("names")
def names(
    groups: Mapping[str, Parts], prefix: Prefix, is_gguf: bool, gguf: GgufFile | None = None
) -> Mapping[str, str | None]:
    """Module name on disk -> canonical name; None for other towers."""
    if is_gguf:
        kind = (gguf.architecture if gguf is not None else None) or "llama"
        return {module: _from_gguf(module, parts, kind) for module, parts in groups.items()}
    decoder = "model.layers." if prefix.model == "model." else None  # names that stay as they are, of 46,000 nearly all
    return {m: m if decoder and m.startswith(decoder) else _canonical(m, prefix) for m in groups}


def _canonical(module: str, prefix: Prefix) -> str | None:
    name = canonical_name(module + ".", prefix)
    return name[:-1] if name else None


def _from_gguf(module: str, parts: Parts, architecture: str) -> str | None:
    suffix = next(iter(parts))
    name = f"{module}.{suffix}" if suffix else module
    full = gguf_canonical(name, architecture)
    return full.removesuffix("." + suffix) if full else _strange(module)


def _strange(module: str) -> str | None:
    """A name outside GGUF's vocabulary keeps its layer, so that it can be reported; other towers' have more dots."""
    block, _, rest = module.partition(".")
    if block == "blk":
        return f"model.layers.{rest}"
    return None if block in OTHER_TOWERS else module


@provides("is_gguf")
def is_gguf(shards: Mapping[str, object]) -> bool:
    """Whether the weights are GGUF."""
    return any(name.endswith(".gguf") for name in shards)


class Lookup:
    """Judges headers, remembering every distinct case."""

    def __init__(self, architecture: Architecture | None, declaration: Declaration | None) -> None:
        self._architecture = architecture
        self._declaration = declaration
        self._has_rules = declaration is not None and bool(declaration.rules)
        self._peers: dict[tuple[object, ...], tuple[str, WeightFormat, Form]] = {}
        self._forms: dict[object, tuple[WeightFormat, Form, Scheme | None]] = {}
        self._expected: dict[tuple[str, int | None], tuple[str, tuple[int, ...] | None]] = {}

    def judge(
        self, name: str, canonical: str | None, template: str, layer: int | None, parts: Parts
    ) -> tuple[str, WeightFormat, Form]:
        """Kind, format and form of one module."""
        if self._has_rules:  # which may name this module and not its peers
            return self._judge(name, canonical, template, layer, parts)
        peers = (template, layer, canonical is None, *parts, *map(_HEADER, parts.values()))
        known = self._peers.get(peers)
        if known is None:
            known = self._peers[peers] = self._judge(name, canonical, template, layer, parts)
        return known

    def _judge(
        self, name: str, canonical: str | None, template: str, layer: int | None, parts: Parts
    ) -> tuple[str, WeightFormat, Form]:
        kind, expected = self._role(canonical, template, layer)
        declared = self._declaration.scheme_for(name) if self._declaration is not None and kind != "norm" else None
        key = (*parts, *[(info.dtype, info.shape) for info in parts.values()], id(declared), expected)
        known = self._forms.get(key)
        if known is None:
            fmt, form = detect(parts, declared, expected)
            known = self._forms[key] = (fmt, form, declared)  # holds `declared`, so that its id stays its own
        return kind, known[0], known[1]

    def _role(self, canonical: str | None, template: str, layer: int | None) -> tuple[str, tuple[int, ...] | None]:
        key = (template, layer)
        known = self._expected.get(key)
        if known is None:
            known = self._expected[key] = self._role_of(canonical)
        return known

    def _role_of(self, canonical: str | None) -> tuple[str, tuple[int, ...] | None]:
        if canonical is None:
            return "unknown", None
        if self._architecture is not None:
            parameter = self._architecture.match(canonical + ".weight") or self._architecture.match(canonical)
            if parameter is not None:
                return parameter.kind, parameter.shape if parameter.dims else None
        return kind_by_name(canonical), None


def kind_by_name(name: str) -> str:
    """The usual endings, for families that are not known."""
    last = name.rpartition(".")[2]
    if last == "lm_head" or last == "output":
        return "head"
    if last.startswith("embed") or last in ("wte", "token_embd"):
        return "embedding"
    if "norm" in last or last.startswith("ln_"):
        return "norm"
    if last in ("gate", "router"):
        return "router"
    if last.endswith(("_proj", "_proj_with_mqa", "qkv", "fc1", "fc2", "w1", "w2", "w3", "dense")):
        return "linear"
    return "other"


@provides("kv_scales")
def kv_scales(tensors: Mapping[str, TensorInfo]) -> Mapping[str, str]:
    """Tensor -> which scale of the KV cache it is."""
    return split_kv_scales(tensors)
