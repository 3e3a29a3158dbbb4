"""One checkpoint as the walk sees it: layers that take weights only while they run, an embedding, and a streamed head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from degarble.api import path_is_hub
from degarble.errors import EvidenceMissing, TargetError
from degarble.evidence import Evidence, Settings
from degarble.evidence.model import ModelConfig
from degarble.target import open_target
from degarble_engine.numerics.gguf_rope import LONG, SHORT, RopeUnknown, rope_values
from degarble_engine.numerics.precision import FP32, Precision
from degarble_engine.numerics.skeleton import Keywords, Skeleton, model_config
from degarble_engine.numerics.streamed_weights import StreamedWeights, dequantized
from degarble_engine.numerics.tap import Taps, is_norm
from degarble_engine.numerics.tokens import TokenBatch

HEAD_BLOCK_BYTES = 32 << 20
"""Rows of the head that are in memory at once, in fp32."""
Edit = Callable[[str, Tensor], Tensor]
"""(full parameter name, stored values in fp32) -> values to use: plants and repairs of single components."""


class WalkedModel:
    """A checkpoint, opened; nothing is loaded until a layer is asked for.

    `edit` sees every weight before it is used; `config_edit` may change the config's values: a counterfactual is the same
    model with one of the two.
    """

    def __init__(
        self,
        evidence: Evidence,
        precision: Precision = FP32,
        *,
        edit: Edit | None = None,
        config_values: dict[str, Any] | None = None,
    ) -> None:
        self.evidence = evidence
        self.precision = precision
        self.edit = edit
        self.row_owners: dict[str, WalkedModel] = {}
        """Embedding or head -> the model whose rows stand in for this one's."""
        try:
            config: ModelConfig = evidence.get("model_config")
            self.weights = StreamedWeights(evidence)
        except EvidenceMissing as missing:
            raise TargetError(f"{evidence.get('source').path}: cannot be run: {missing}") from None
        self.file = config.file
        values = _plain_values(config) if config_values is None else config_values
        self.rope_not_applied: str | None = None
        """Rotary settings of a GGUF file that could not be told to transformers."""
        if config_values is None:
            values = values | self._rope_values(config)
        self.config_values = values
        self.skeleton = Skeleton(model_config(values, config.file))
        self._keywords: list[Keywords] = []
        self._place_outside()

    @classmethod
    def open(cls, target: str, precision: Precision = FP32) -> WalkedModel:
        """Open what the user named."""
        if path_is_hub(target):
            raise TargetError(f"{target}: weights are needed on disk: download the repository first")
        return cls(Evidence(open_target(target), Settings()), precision)

    def counterfactual(
        self,
        edit: Edit | None = None,
        config_values: dict[str, Any] | None = None,
        row_owners: Mapping[str, WalkedModel] | None = None,
        *,
        edits_outside: bool = False,
    ) -> WalkedModel:
        """The same checkpoint with changed weights, another config, or another model's embedding or head.

        Files are not opened again; the code is shared unless the config or a weight outside the layers changes.
        """
        if config_values is None and not edits_outside:
            variant = copy(self)
            variant.edit = edit
        else:
            variant = WalkedModel(
                self.evidence, self.precision, edit=edit, config_values=config_values or dict(self.config_values)
            )
        variant.row_owners = dict(row_owners or {})
        return variant

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.skeleton.layers)

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return int(self.skeleton.config.hidden_size)

    @property
    def vocab_size(self) -> int:
        """Rows of the output projection."""
        return self.weights.num_rows(self.head_name)

    def _value(self, name: str, shape: tuple[int, ...], module: nn.Module) -> Tensor:
        values = self.weights.tensor(name, shape)
        if self.edit is not None:
            values = self.edit(name, values)
        return self.precision.weight(values, isinstance(module, nn.Linear) or values.ndim == 3, is_norm(module))

    def _place_outside(self) -> None:
        """Weights outside the layers except the two large ones: a final norm."""
        for name, owner, attribute in self.skeleton.outside_layers():
            shape = tuple(owner._parameters[attribute].shape)
            owner._parameters[attribute] = nn.Parameter(self._value(name, shape, owner), requires_grad=False)
        factors = self.weights.modules.get("rope_freqs")
        if factors is not None and self.weights.is_gguf:
            self._stretch_rotary(factors)

    def _rope_values(self, config: ModelConfig) -> dict[str, Any]:
        stored = {name: self.weights.modules.get(name) for name in (LONG, SHORT)} if self.weights.is_gguf else {}
        factors = {name: dequantized(one).ravel().tolist() for name, one in stored.items() if one is not None}
        try:
            return rope_values(config, factors)
        except RopeUnknown as unknown:
            self.rope_not_applied = str(unknown)
            return {}

    def _stretch_rotary(self, factors: Any) -> None:
        """GGUF stores Llama 3's stretched rotary frequencies as divisors, in a tensor of its own."""
        divisors = torch.from_numpy(dequantized(factors)).float()
        for module in self.skeleton.model.modules():
            buffer = module._buffers.get("inv_freq")
            if isinstance(buffer, Tensor) and buffer.shape == divisors.shape:
                module._buffers["inv_freq"] = buffer / divisors

    @torch.no_grad()
    def start(self, batch: TokenBatch) -> Tensor:
        """The hidden state before the first layer. [batch, tokens, hidden]

        Only the embedding's rows that the batch needs are read, and the ids are renumbered to them.
        """
        name = self.embedding_name
        used, renumbered = torch.unique(batch.ids, return_inverse=True)
        if int(used[-1]) >= self.weights.num_rows(name):
            raise TargetError(f"token id {int(used[-1])} is outside the embedding's {self.weights.num_rows(name)} rows")
        rows = self.row_owners.get(name, self).weights.rows(name, used.numpy())
        if self.edit is not None:
            rows = self.edit(name, rows)
        embedding = self.skeleton.embedding
        embedding._parameters["weight"] = nn.Parameter(self.precision.weight(rows, False), requires_grad=False)
        if getattr(embedding, "padding_idx", None) is not None:
            embedding.padding_idx = None  # the ids are renumbered
        hidden, self._keywords = self.skeleton.arguments(renumbered)
        return hidden

    @contextmanager
    def layer(self, index: int) -> Iterator[nn.Module]:
        """A decoder layer with its weights; they are dropped at the end."""
        layer = self.skeleton.layers[index]
        prefix = self.skeleton.layer_name(index)
        empty: list[tuple[dict[str, Any], str, Any]] = []
        handles = []
        try:
            for path, module in layer.named_modules():
                for kept in (module._parameters, module._buffers):
                    for attribute, old in list(kept.items()):
                        name = ".".join(part for part in (prefix, path, attribute) if part)
                        if old is None or attribute in module._non_persistent_buffers_set:
                            continue
                        empty.append((kept, attribute, old))
                        value = self._value(name, tuple(old.shape), module)
                        kept[attribute] = (
                            nn.Parameter(value, requires_grad=False) if kept is module._parameters else value
                        )
            handles = self.precision.install(layer)
            yield layer
        finally:
            for handle in handles:
                handle.remove()
            for kept, attribute, old in empty:
                kept[attribute] = old

    @torch.no_grad()
    def run(self, index: int, layer: nn.Module, hidden: Tensor, taps: Taps | None = None) -> Tensor:
        """One layer on a hidden state, with the arguments that the family's code gives it."""
        with taps.on(layer) if taps is not None else nullcontext():
            return self.differentiable(index, layer, hidden)

    def differentiable(self, index: int, layer: nn.Module, hidden: Tensor) -> Tensor:
        """The same with a graph behind it, if the hidden state wants a gradient."""
        found = layer(hidden, **self._keywords[index])
        output = found[0] if isinstance(found, tuple) else found
        assert isinstance(output, Tensor)
        return output

    def position_embeddings(self, index: int) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines [1, tokens, lanes] that a layer is given, after `start`; None where a family hands none over."""
        given = self._keywords[index].get("position_embeddings")
        return given if isinstance(given, tuple) and len(given) == 2 else None

    @property
    def embedding_name(self) -> str:
        """Parameter of the input embedding."""
        return f"{self.skeleton.name_of(self.skeleton.embedding)}.weight"

    @property
    def head_name(self) -> str:
        """Parameter of the output projection: the embedding's where the two are tied or there is no head."""
        name = f"{self.skeleton.name_of(self.skeleton.head)}.weight"
        if self.skeleton.config.tie_word_embeddings or not self.weights.has(name):
            return self.embedding_name
        return name

    def head_blocks(self) -> Iterator[tuple[int, int]]:
        """Half-open ranges of vocabulary rows that are read together."""
        rows = max(1, HEAD_BLOCK_BYTES // (4 * self.hidden_size))
        for start in range(0, self.vocab_size, rows):
            yield start, min(start + rows, self.vocab_size)

    def stored_head(self, rows: tuple[int, int]) -> Tensor:
        """Rows [rows[0], rows[1]) of the output projection as stored, in fp32."""
        name = self.head_name
        return self.row_owners.get(name, self).weights.rows(name, torch.arange(*rows).numpy())

    def reads_head_of(self, other: WalkedModel) -> bool:
        """Whether both read the same stored rows."""
        return self.weights is other.weights and not self.row_owners and not other.row_owners

    @torch.no_grad()
    def logits(self, hidden: Tensor, rows: tuple[int, int], values: Tensor | None = None) -> Tensor:
        """Logits of vocabulary rows [rows[0], rows[1]) from the last hidden state of some tokens. [tokens, rows]

        `values`: those rows of the head as stored, where the caller has read them already.
        """
        with self.head(rows, values):
            return self.skeleton.logits(hidden[None])[0].float()

    @contextmanager
    def head(self, rows: tuple[int, int], values: Tensor | None = None) -> Iterator[None]:
        """Those rows of the output projection in their place: `skeleton.logits` gives their logits."""
        values = self.stored_head(rows) if values is None else values
        if self.edit is not None:
            values = self.edit(f"{self.head_name}[{rows[0]}:{rows[1]}]", values)
        head = self.skeleton.head
        kept = dict(head._parameters)
        head._parameters["weight"] = nn.Parameter(self.precision.weight(values, False), requires_grad=False)
        if kept.get("bias") is not None:
            bias = self.weights.tensor(f"{self.skeleton.name_of(head)}.bias", tuple(kept["bias"].shape))
            head._parameters["bias"] = nn.Parameter(
                self.precision.weight(bias[rows[0] : rows[1]], False), requires_grad=False
            )
        try:
            yield
        finally:
            head._parameters.update(kept)


def _plain_values(config: ModelConfig) -> dict[str, Any]:
    """The config for transformers. GGUF describes latent attention as llama.cpp computes it, with one head of the cache for
    all, and derives a `head_dim` that means nothing here."""
    values = dict(config.text)
    if config.gguf is not None and values.get("kv_lora_rank"):
        values.pop("head_dim", None)
        values["num_key_value_heads"] = values.get("num_attention_heads")
    return values
