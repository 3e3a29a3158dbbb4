"""The same questions to several states of the model: what an exchanged part does to answers is the proof."""

from __future__ import annotations

import msgspec

from degarble.evidence import Evidence
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.incident_demo.scene import plant_in_cache
from degarble_engine.incident_demo.stage import OPTIONS
from degarble_engine.server.served_model import ServedModel, open_served

QUESTIONS = (
    "The capital of France is",
    "What is 17 + 25? The sum is",
    "Bread needs flour, water, salt and",
    "The river rises in the mountains and",
)
MAX_TOKENS = 24
GREEDY = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Of one state, question by question."""

    ids: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]

    def num_different(self, other: Answers) -> int:
        """Questions with other ids."""
        return sum(one != two for one, two in zip(self.ids, other.ids, strict=True))


def opened(evidence: Evidence) -> ServedModel:
    """Ready to be asked."""
    return open_served(evidence, "asked", options=OPTIONS)


def ask(model: ServedModel, seed: int | None = None) -> Answers:
    """Greedy answers of a fresh engine; `seed`: with the fault in its cache."""
    engine = LLMEngine(model.engine.model, OPTIONS, eos_ids=model.engine.eos_ids)
    if seed is not None:
        plant_in_cache(engine, seed)
    prompts = [model.prompter.encode(question) for question in QUESTIONS]
    done = list(engine.generate(prompts, GREEDY))
    ids = tuple(tuple(one.token_id for one in request.outputs) for request in done)
    return Answers(ids=ids, texts=tuple(model.showing.decode(one) for one in ids))
