"""Evidence about absent parameters: how each would be called in this checkpoint, and which file would hold it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from degarble.architectures.canonical import Prefix
from degarble.architectures.gguf_names import gguf_canonical, gguf_tables
from degarble.checkpoint.index import ShardIndex
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.parameters import Missing, Position
from degarble.evidence.store import provides
from degarble.evidence.weights import NUMBERED, Shard
from degarble.finding import Location
from degarble.formats.interface import StoredModule


class DiskNames:
    """How a parameter that is not there would be called, and in which file it would be."""

    def __init__(
        self,
        modules: Modules,
        prefix: Prefix,
        model_config: ModelConfig,
        shards: Mapping[str, Shard],
        index: ShardIndex | None,
    ) -> None:
        self._prefix = prefix
        self._config = model_config
        self._modules = modules
        self._peers: dict[str, StoredModule] = {}
        self._kin: dict[str, StoredModule] = {}
        for example, _ in modules.classes():
            if example.canonical is not None and example.payload is not None:
                self._peers.setdefault(example.template, example)
                self._kin.setdefault(example.kind, example)
        self._is_whole = _is_whole(shards, index)

    @cached_property
    def _files(self) -> dict[int | None, set[str]]:
        """Layer -> the files that hold something of it."""
        files: dict[int | None, set[str]] = {}
        for module in self._modules.values():
            files.setdefault(module.layer, set()).add(module.any_part.file)
        return files

    def place(self, item: Missing, position: Position) -> Location:
        """File (where there can be only one), tensor, module, layer and expert."""
        layer, expert = position
        module = self.module(item.module, position)
        tensor = f"{module}.bias" if item.is_bias else self._payload(item, module)
        files = self._files.get(layer, set())
        file = next(iter(files)) if self._is_whole and len(files) == 1 else None
        return Location(file=file, tensor=tensor, module=module, layer=layer, expert=expert)

    def module(self, template: str, position: Position) -> str:
        """The module's name in this file's own vocabulary."""
        layer, expert = position
        canonical = template.replace("{layer}", str(layer)).replace("{expert}", str(expert))
        if self._config.gguf is None:
            return self._prefix.on_disk(canonical)
        peer = self._peers.get(template)
        if peer is not None and peer.layer is not None:
            return peer.name.replace(f"blk.{peer.layer}.", f"blk.{layer}.", 1)
        return _gguf_name(canonical, layer, self._config.gguf.architecture or "llama")

    def _payload(self, item: Missing, module: str) -> str:
        """Spelled as in the peers of other layers, or as in another module of its kind."""
        own = item.template.name[len(item.module) :]
        peer = self._peers.get(item.module) or (self._kin.get(item.template.kind) if own else None)
        if peer is None or peer.payload is None:
            return module + own
        return module + peer.payload.name.removeprefix(peer.name)


def _gguf_name(canonical: str, layer: int | None, architecture: str) -> str:
    """The GGUF module whose canonical name this is; the canonical name itself if there is none."""
    tables = gguf_tables()
    top = next((name for name, full in tables["top_level"].items() if full == f"{canonical}.weight"), None)
    if top is not None:
        return str(top).removesuffix(".weight")
    for name in {**tables["modules"], **tables["by_architecture"].get(architecture, {})}:
        if gguf_canonical(f"blk.{layer}.{name}.weight", architecture) == f"{canonical}.weight":
            return f"blk.{layer}.{name}"
    return canonical


def _is_whole(shards: Mapping[str, Shard], index: ShardIndex | None) -> bool:
    """Whether every weight file is there and readable."""
    if any(shard.problem is not None for shard in shards.values()):
        return False
    if index is not None and any(name not in shards for name in index.shards):
        return False
    numbered = [match for name in shards if (match := NUMBERED.match(name))]
    return not numbered or len(numbered) >= int(numbered[0]["total"])


@provides("disk_names")
def disk_names(
    modules: Modules,
    prefix: Prefix,
    model_config: ModelConfig,
    shards: Mapping[str, Shard],
    index: ShardIndex | None = None,
) -> DiskNames:
    """Names for what is not there."""
    return DiskNames(modules, prefix, model_config, shards, index)
