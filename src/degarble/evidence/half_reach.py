"""How far activations reach, told from the weights alone: no text, no torch.

Massive activations sit on the first token, whatever it is, and the first token attends to nobody but itself: its attention
is o_proj(v_proj(norm(x))), so that rows of the embedding can be taken through the layers with one product a matrix. The
estimate is the largest of a few rows; the bound holds for every input (n is a normalised vector of length sqrt(H)):

    |gate_j.n| |up_j.n| <= H (|a||b| + |a.b|) / 2        a, b: rows of gate and up, times the norm's gain
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import DegarbleError, EvidenceMissing
from degarble.evidence.half_precision import HALF, LARGEST_HALF
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.store import Settings, provides
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.profile.code_groups import values_of

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Plain pre-norm layers: two norms, gated feed-forward, no factor beside the residual stream."""
NUM_ROWS = 16
UNREADABLE = (ValueError, KeyError, IndexError, NotImplementedError, DegarbleError)


class ReachRow(msgspec.Struct, frozen=True, kw_only=True):
    """One module."""

    location: Location
    layer: int
    place: str
    """residual add | gate x up | output"""
    estimate: float
    bound: float | None = None
    """What no input can exceed; None where none is formed."""

    @property
    def margin(self) -> float:
        """How often the estimate fits into fp16."""
        return LARGEST_HALF / max(self.estimate, 1e-30)


class HalfReach(msgspec.Struct, frozen=True, kw_only=True):
    """All modules, by layer."""

    rows: tuple[ReachRow, ...]

    def largest(self, *places: str) -> ReachRow:
        """The row with the largest estimate at one of the places; the first of equals."""
        return max((row for row in self.rows if row.place in places), key=lambda row: row.estimate)


@provides("half_reach")
def half_reach(settings: Settings, modules: Modules, model_config: ModelConfig) -> HalfReach:
    """Only where fp16 is asked for, since every weight is read and multiplied."""
    if (settings.dtype or "").lower() not in HALF:
        raise EvidenceMissing("needs --dtype float16")
    kind = str(model_config.text.get("model_type"))
    if kind not in FAMILIES or model_config.gguf is not None or model_config.text.get("hidden_act", "silu") != "silu":
        raise EvidenceMissing(f"no static prediction for {kind} in this form: degarble overflow runs it")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return HalfReach(rows=tuple(_rows(modules, model_config)))
    except UNREADABLE as error:
        raise EvidenceMissing(f"weights that cannot be read: {error}") from None


def _rows(modules: Modules, config: ModelConfig) -> Iterator[ReachRow]:
    text = config.text
    layers, eps = int(text["num_hidden_layers"]), float(text.get("rms_norm_eps", 1e-6))
    heads = int(text["num_attention_heads"])
    shared = heads // int(text.get("num_key_value_heads") or heads)
    state = _first_tokens(modules, text.get("bos_token_id"))
    for layer in range(layers):
        name = f"model.layers.{layer}"
        normed = _normed(state, _values(modules, f"{name}.input_layernorm"), eps)
        value = _linear(modules, f"{name}.self_attn.v_proj", normed)
        head_dim = int(text.get("head_dim") or text["hidden_size"] // heads)
        mixed = value.reshape(len(value), -1, 1, head_dim).repeat(shared, 2).reshape(len(value), -1)
        state = state + _linear(modules, f"{name}.self_attn.o_proj", mixed)
        yield _row(modules, f"{name}.self_attn.o_proj", layer, "residual add", state)
        gain = _values(modules, f"{name}.post_attention_layernorm")
        normed = _normed(state, gain, eps)
        gate, up = (_values(modules, f"{name}.mlp.{leaf}") for leaf in ("gate_proj", "up_proj"))
        bound = _product_bound(gate * gain, up * gain)
        product = _silu(normed @ gate.T) * (normed @ up.T)
        yield _row(modules, f"{name}.mlp.down_proj", layer, "gate x up", product, bound)
        output = _linear(modules, f"{name}.mlp.down_proj", product)
        yield _row(modules, f"{name}.mlp.down_proj", layer, "output", output)
        state = state + output
        yield _row(modules, f"{name}.mlp.down_proj", layer, "residual add", state)


def _first_tokens(modules: Modules, bos: object) -> Array:
    """Rows of the embedding: that of the first token by the config, and some others spread evenly."""
    table = _values(modules, "model.embed_tokens")
    ids = np.linspace(0, len(table) - 1, NUM_ROWS).astype(int)
    if isinstance(bos, int) and 0 <= bos < len(table):
        ids[0] = bos
    rows: Array = table[ids]
    return rows


def _values(modules: Modules, name: str) -> Array:
    module: StoredModule = modules.by_canonical[name]
    if module.form.format == "plain":
        return np.asarray(module.array(PAYLOAD), np.float32)
    return values_of(module)


def _linear(modules: Modules, name: str, given: Array) -> Array:
    module = modules.by_canonical[name]
    output: Array = given @ _values(modules, name).T
    return output + module.array("bias").astype(np.float32) if "bias" in module.form.roles else output


def _normed(values: Array, gain: Array, eps: float) -> Array:
    result: Array = values / np.sqrt((values.astype(np.float64) ** 2).mean(1, keepdims=True) + eps) * gain
    return result.astype(np.float32)


def _silu(values: Array) -> Array:
    result: Array = values / (1 + np.exp(-np.clip(values, -80, 80)))
    return result


def _product_bound(gate: Array, up: Array) -> float:
    sizes = np.linalg.norm(gate, axis=1) * np.linalg.norm(up, axis=1) + np.abs((gate * up).sum(1))
    return float(gate.shape[1] * sizes.max() / 2)


def _row(modules: Modules, name: str, layer: int, place: str, values: Array, bound: float | None = None) -> ReachRow:
    estimate = float(np.abs(np.nan_to_num(values, nan=np.inf)).max())
    return ReachRow(
        location=modules.by_canonical[name].place(), layer=layer, place=place, estimate=estimate, bound=bound
    )
