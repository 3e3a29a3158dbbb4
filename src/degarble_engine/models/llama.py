"""Llama, SmolLM and Mistral: GQA, SwiGLU, no biases unless the config asks for them."""

from __future__ import annotations

from typing import ClassVar

from degarble.errors import TargetError
from degarble_engine.models.causal_lm import AttentionBlock, CausalLM, FeedForward
from degarble_engine.models.gated_mlp import GatedMlp
from degarble_engine.models.grouped_attention import GroupedAttention
from degarble_engine.models.weight_store import WeightStore


class Llama(CausalLM):
    """See the module; other families start from it."""

    model_types: ClassVar[tuple[str, ...]] = ("llama", "mistral")

    def attention(self, store: WeightStore, layer: int) -> AttentionBlock:
        """See CausalLM."""
        bias = bool(getattr(self.config, "attention_bias", False))
        return GroupedAttention(
            store, self.config, layer, self.head_dim, qkv_bias=bias, output_bias=bias, window=self.window(layer)
        )

    def window(self, layer: int) -> int | None:
        """Rows that a token of this layer sees; None for all."""
        kinds = getattr(self.config, "layer_types", None)
        if kinds is not None and kinds[layer] != "sliding_attention":
            return None
        width = getattr(self.config, "sliding_window", None)
        return None if width is None else int(width)

    def feed_forward(self, store: WeightStore, layer: int) -> FeedForward:
        """See CausalLM."""
        bias = bool(getattr(self.config, "mlp_bias", False))
        return self.mlp(store, f"model.layers.{layer}.mlp", int(self.config.intermediate_size), bias=bias)

    def mlp(self, store: WeightStore, name: str, width: int, *, bias: bool = False) -> GatedMlp:
        """gate, up and down below `name`. Raises TargetError for an activation other than SiLU."""
        if self.config.hidden_act not in ("silu", "swish"):
            raise TargetError(
                f"hidden_act {self.config.hidden_act!r}: the engine has silu for {self.config.model_type}"
            )
        hidden = self.hidden_size
        gate_up = store.linear([f"{name}.gate_proj", f"{name}.up_proj"], [(width, hidden)] * 2, bias=bias)
        return GatedMlp(gate_up, store.linear([f"{name}.down_proj"], [(hidden, width)], bias=bias))
