"""The simulation against the plain walk and against torch's own fp16, and what it says of places and lengths."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from degarble_engine.numerics.tokens import TokenBatch, batch_of
from degarble_engine.numerics.walk import final_states
from degarble_engine.numerics.walked_model import Edit, WalkedModel
from degarble_engine.overflow.range_walk import EXACT_LANE, RangeWalk, range_walk
from degarble_engine.overflow.switches import lanes_of
from degarble_engine.overflow.verdict import evidence_of, first_event
from tests.degarble_engine.tiny_models import FAMILIES, SEQUENCES, folder, tiny_batch


def walked(
    family: str, edit: Edit | None, *engines: str, dtype: str = "fp16", batch: TokenBatch | None = None
) -> tuple[RangeWalk, Any]:
    model = WalkedModel.open(str(folder(family)))
    if edit is not None:
        model = model.counterfactual(edit, edits_outside=True)
    lanes = lanes_of([dtype], engines)
    return range_walk(model, [batch or tiny_batch()], lanes), lanes


def scaled(name: str, factor: float) -> Edit:
    return lambda parameter, values: values * factor if parameter.startswith(name) else values


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_exact_lane_is_the_walk(family: str) -> None:
    """The simulated attention and the hooks change nothing where nothing is rounded."""
    walk, lanes = walked(family, None, "transformers", "vllm")
    hidden = walk.runs[0][0].hidden[walk.batches[0].valid]
    (wanted,) = final_states([WalkedModel.open(str(folder(family)))], tiny_batch())
    assert float((hidden - wanted).abs().max() / wanted.abs().max()) < 1e-5
    assert all(first_event(walk, lane) is None for lane in lanes)


def test_rounding_is_that_of_torch() -> None:
    """The lane of transformers in fp16 against transformers in fp16: as close as fp16 is to itself."""
    walk, _ = walked("llama", None, "transformers")
    mine = walk.runs[0][1].hidden
    model = AutoModelForCausalLM.from_pretrained(folder("llama"), dtype=torch.float16, attn_implementation="eager")
    batch = tiny_batch()
    seen: list[Tensor] = []
    model.model.layers[-1].register_forward_hook(
        lambda _, __, out: seen.append(out[0] if isinstance(out, tuple) else out)
    )
    with torch.no_grad():
        model.eval()(input_ids=batch.ids, attention_mask=batch.valid.long())
    exact = walk.runs[0][0].hidden
    theirs = seen[0].float()
    noise = float((theirs - exact)[batch.valid].norm())
    assert 0 < float((mine - theirs)[batch.valid].norm()) < 2 * noise
    assert noise / float(exact[batch.valid].norm()) < 0.01


def first(walk: RangeWalk, lanes: Any, engine: str) -> Any:
    lane = next(one for one in lanes if engine in one.engines)
    found = first_event(walk, lane)
    return None if found is None else found[0]


def test_one_file_is_finite_in_llama_cpp_and_lost_in_vllm() -> None:
    """A stream beyond fp16 whose parts fit: embedding, o_proj and down_proj times a power of two."""
    factor = 2.0**16
    walk, lanes = walked("llama", scaled("model.layers.1.mlp.down_proj", factor), "vllm", "llama.cpp", "half-norm")
    event = first(walk, lanes, "vllm")
    assert (event.layer, event.module, event.place) == (1, "mlp.down_proj", "output")
    assert event.value > 65504
    assert first(walk, lanes, "llama.cpp") is None
    left = evidence_of(walk, lanes).left
    assert "llama.cpp" in left[-1].finite_engines or "llama.cpp" in left[0].finite_engines


def test_a_product_beyond_the_range_is_the_linear_s_that_reads_it() -> None:
    def edit(name: str, values: Tensor) -> Tensor:
        if name.startswith(("model.layers.2.mlp.up_proj", "model.layers.2.mlp.gate_proj")):
            return values * 2.0**9
        return values * 2.0**-18 if name.startswith("model.layers.2.mlp.down_proj") else values

    walk, lanes = walked("llama", edit, "transformers")
    event = first(walk, lanes, "transformers")
    assert (event.layer, event.module, event.place) == (2, "mlp.down_proj", "gate x up")
    in_bf16 = walked("llama", edit, "transformers", dtype="bf16")
    assert first(*in_bf16, "transformers") is None


def test_a_sum_of_squares_gives_zeros_and_no_nan() -> None:
    walk, lanes = walked("llama", scaled("model.embed_tokens", 2.0**9), "half-norm", "transformers")
    event = first(walk, lanes, "half-norm")
    assert (event.layer, event.module, event.place, event.kind) == (0, "input_layernorm", "sum of squares", "zeros")
    assert first(walk, lanes, "transformers") is None
    ledger = walk.of_lane(next(one for one in lanes if "half-norm" in one.engines))[0]
    assert ledger.lost_share == 0 and ledger.harmed_share > 0.5


def test_scores_overflow_where_they_are_held_in_half() -> None:
    def edit(name: str, values: Tensor) -> Tensor:
        inner = name.startswith(("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj"))
        return values * 2.0**9 if inner else values

    walk, lanes = walked("llama", edit, "transformers", "vllm")
    event = first(walk, lanes, "transformers")
    assert (event.module, event.place) == ("self_attn", "q.k")
    assert first(walk, lanes, "vllm") is None


def test_accumulators_of_values_overflow_with_the_number_of_keys() -> None:
    """Equal scores: a sum over n keys of values v reaches n v / 8 in fp16, and v in fp32."""

    def edit(name: str, values: Tensor) -> Tensor:
        if name.startswith("model.layers.0.self_attn.q_proj"):
            return values * 0
        if name.startswith("model.layers.0.self_attn.o_proj"):
            return values * 2.0**-14
        return values * 2.0**14 if name.startswith("model.layers.0.self_attn.v_proj") else values

    long = batch_of([[7] * 200], "one token, again and again")
    walk, lanes = walked("llama", edit, "llama.cpp", "vllm", batch=long)
    event = first(walk, lanes, "llama.cpp")
    assert event is not None and (event.module, event.place) == ("self_attn", "P.V accumulator")
    assert event.token > 8
    assert first(walk, lanes, "vllm") is None


def test_one_long_text_answers_for_its_beginnings() -> None:
    """Cut just before the first lost token, nothing is lost; one token more, and it is."""
    ids = [one for one in SEQUENCES[0] if one != 319]
    sequence = [*ids, 319, *ids]
    lanes = lanes_of(["fp16"], ["transformers"])

    def safe(length: int) -> int | None:
        cut = sequence[:length]
        rows = sorted(set(cut))

        def edit(name: str, values: Tensor) -> Tensor:
            if 319 not in cut or name != "model.embed_tokens.weight" or len(values) != len(rows):
                return values
            values = values.clone()
            values[rows.index(319)] *= 2.0**20
            return values

        model = WalkedModel.open(str(folder("llama"))).counterfactual(edit)
        found: int | None = range_walk(model, [batch_of([cut], "cut")], lanes).of_lane(lanes[0])[0].safe_tokens
        return found

    assert safe(len(sequence)) == safe(len(ids) + 1) == len(ids)
    assert safe(len(ids)) is None


def test_peaks_are_those_of_the_exact_run() -> None:
    walk, _ = walked("llama", None, "transformers")
    ledger = walk.of_lane(EXACT_LANE)[0]
    peak = ledger.peaks[3, "mlp.down_proj", "residual add"]
    output = walk.runs[0][0].hidden
    assert math.isclose(peak.value, float(output[walk.batches[0].valid].abs().max()), rel_tol=1e-6)
    assert float(output[peak.sequence, peak.token].abs().max()) == pytest.approx(peak.value)
