"""What every decoder shares: embedding, a list of pre-norm layers, final norm and head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from degarble.kvcache.geometry import Geometry
from degarble_engine.models.attend import Attend
from degarble_engine.models.norm import rms_norm
from degarble_engine.models.rotary import Rotary
from degarble_engine.models.weight_store import WeightStore

Rotation = tuple[Tensor, Tensor]
"""cos and sin of a step's positions."""
AttentionBlock = Callable[[Tensor, Rotation, Attend], Tensor]
FeedForward = Callable[[Tensor], Tensor]


class Layer:
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(
        self, gains: tuple[Tensor, Tensor], eps: float, attention: AttentionBlock, feed_forward: FeedForward
    ) -> None:
        self._gains, self._eps = gains, eps
        self._attention, self._feed_forward = attention, feed_forward

    def __call__(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """[n, hidden] -> [n, hidden]"""
        hidden = hidden + self._attention(rms_norm(hidden, self._gains[0], self._eps), rotation, attend)
        return hidden + self._feed_forward(rms_norm(hidden, self._gains[1], self._eps))


class CausalLM(ABC):
    """One model. A family's file says how its attention and its feed-forward part are built."""

    model_types: ClassVar[tuple[str, ...]] = ()
    """`model_type` of the configs that this file is for."""

    def __init__(self, config: Any, store: WeightStore) -> None:
        """`config`: transformers'. Raises TargetError where a weight is missing, or an option is not supported."""
        self.config, self.dtype, self.device = config, store.dtype, store.device
        self.cache_dtype = store.held_as if store.held_as == torch.bfloat16 else store.dtype
        self.vocab_size, self.hidden_size = int(config.vocab_size), int(config.hidden_size)
        self._embedding = store.embedding("model.embed_tokens.weight", (self.vocab_size, self.hidden_size))
        self._rotary = Rotary(config, self.rotary_lanes)
        self.layers = [self._layer(store, index) for index in range(int(config.num_hidden_layers))]
        self._gain = store.vector("model.norm.weight", self.hidden_size)
        shape = (self.vocab_size, self.hidden_size)
        is_tied = bool(config.tie_word_embeddings) or not store.has("lm_head.weight")
        self._head = store.tied(self._embedding) if is_tied else store.linear(["lm_head"], [shape])
        self.row_multiple = store.usual_row_multiple
        """Batches filled up to it need not be filled up in each product."""

    @property
    def rotary_lanes(self) -> int:
        """Lanes of a head that turn with the position."""
        return self.head_dim

    @property
    def head_dim(self) -> int:
        """Lanes of a query head."""
        own = getattr(self.config, "head_dim", None)
        return int(own or self.config.hidden_size // self.config.num_attention_heads)

    def geometry(self, num_blocks: int, block_size: int) -> Geometry:
        """The cache that this model needs."""
        return Geometry(
            num_blocks=num_blocks,
            block_size=block_size,
            num_layers=len(self.layers),
            num_kv_heads=int(self.config.num_key_value_heads),
            head_dim=self.head_dim,
        )

    @abstractmethod
    def attention(self, store: WeightStore, layer: int) -> AttentionBlock:
        """The attention of one layer."""

    @abstractmethod
    def feed_forward(self, store: WeightStore, layer: int) -> FeedForward:
        """The other half of one layer."""

    def _layer(self, store: WeightStore, index: int) -> Layer:
        name = f"model.layers.{index}"
        gains = (
            store.vector(f"{name}.input_layernorm.weight", self.hidden_size),
            store.vector(f"{name}.post_attention_layernorm.weight", self.hidden_size),
        )
        eps = float(self.config.rms_norm_eps)
        return Layer(gains, eps, self.attention(store, index), self.feed_forward(store, index))

    @torch.inference_mode()
    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Token ids and positions [n] of a step, wherever they lie -> [n, hidden] behind the last layer."""
        ids, positions = ids.to(self.device), positions.to(self.device)
        hidden = self._embedding[ids].to(self.dtype)
        rotation = self._rotary.tables(positions, self.dtype)
        for layer in self.layers:
            hidden = layer(hidden, rotation, attend)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """[n, hidden] -> [n, vocab] in fp32."""
        return self._head(rms_norm(hidden, self._gain, float(self.config.rms_norm_eps))).float()
