"""Guards for an engine that is ready to run: what they need to know, the run at the start, and the reference."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from degarble.templates.stop_tokens import LLAMA_CPP_NAMES, is_turn_end
from degarble.tokenizer.detokenize import Detokenizer
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.special_tokens import KEEP
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.guards.activation_collapse import ActivationCollapse
from degarble_engine.guards.baseline import measure
from degarble_engine.guards.block_tap import BlockTap
from degarble_engine.guards.choice import guard_types
from degarble_engine.guards.fallback_decode import FallbackDecode
from degarble_engine.guards.interface import Action, Surroundings
from degarble_engine.guards.rail import GuardRail
from degarble_engine.models.causal_lm import CausalLM

log = logging.getLogger("degarble.guards")
TEXT_END_NAMES = LLAMA_CPP_NAMES | {"</s>", "<｜end▁of▁sentence｜>", "<eos>"}


def install(
    engine: LLMEngine,
    actions: Mapping[str, Action],
    *,
    tokenizer: Tokenizer | None = None,
    baseline_ids: Sequence[int] = (),
    reference: CausalLM | None = None,
) -> GuardRail:
    """Put guards over an engine. `baseline_ids`: a text for the run at the start; `reference`: for the action retry."""
    is_on = {name: action for name, action in actions.items() if action is not Action.OFF}
    tap = BlockTap(engine.model.layers) if ActivationCollapse.name in is_on else None
    surroundings = _surroundings(engine, tokenizer, tap)
    types = guard_types()
    guards = {name: (types[name](surroundings), action) for name, action in is_on.items()}
    for guard, _ in guards.values():
        if isinstance(guard, ActivationCollapse) and tap is not None:
            guard.learn(measure(engine.model, tap, baseline_ids) if baseline_ids else None)
            for block in guard.baseline.collapsed if guard.baseline is not None else ():
                log.warning("%s is collapsed already at the start: far below its neighbours", block)
    fallback = FallbackDecode(reference) if reference is not None else None
    rail = GuardRail(engine, surroundings, guards, fallback=fallback)
    for name, why in rail.silent.items():
        log.warning("the guard %s sees nothing: %s", name, why)
    engine.supervisor = rail
    return rail


def _surroundings(engine: LLMEngine, tokenizer: Tokenizer | None, tap: BlockTap | None) -> Surroundings:
    special = tokenizer.special_ids if tokenizer is not None else frozenset()
    names = tokenizer.pieces if tokenizer is not None else ()
    ends = {one for one in special if one < len(names) and _ends_something(names[one] or "")}
    return Surroundings(
        vocab_size=engine.model.vocab_size,
        max_model_len=engine.max_model_len,
        end_ids=frozenset(engine.eos_ids),
        end_like_ids=frozenset(ends),
        special_ids=special,
        showing=Detokenizer(tokenizer, special=KEEP) if tokenizer is not None else None,
        tap=tap,
    )


def _ends_something(name: str) -> bool:
    return name in TEXT_END_NAMES or is_turn_end(name)
