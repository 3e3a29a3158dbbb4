"""A checkpoint, checked and opened: engine, tokenizer, template and defaults under one name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import torch

from degarble.errors import EvidenceMissing, TargetError
from degarble.evidence import Evidence
from degarble.templates.stop_tokens import read_stop_ids
from degarble.tokenizer.detokenize import Detokenizer
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.special_tokens import KEEP
from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.engine.ngram import NgramDrafter
from degarble_engine.models.load import load_as_stored, load_model
from degarble_engine.server.grammar import Grammars
from degarble_engine.server.prompter import Prompter
from degarble_engine.server.request_fields import PASSED

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
STORED = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """What every endpoint needs."""

    name: str
    engine: LLMEngine
    tokenizer: Tokenizer
    prompter: Prompter
    defaults: Mapping[str, Any]
    """Sampling parameters of generation_config.json, as vLLM and transformers take them."""
    num_bytes: Mapping[str, int]
    """Memory of the weights by how they are kept."""
    rounding: float
    """Largest relative change of a number on its way into a kernel."""

    @property
    def arithmetic(self) -> str:
        """What is computed in, and by what."""
        model, pages = self.engine.model, self.engine.runner.pages
        words = (
            f"sums in {_short(model.dtype)}",
            f"K/V in {_short(model.cache_dtype)}",
            f"attention {'by torch' if pages is None else 'in place, compiled'}",
            f"weights changed by at most {self.rounding:.1e}",
        )
        return ", ".join(words)

    @cached_property
    def hiding(self) -> Detokenizer:
        """Without special tokens."""
        return Detokenizer(self.tokenizer)

    @cached_property
    def showing(self) -> Detokenizer:
        """With them."""
        return Detokenizer(self.tokenizer, special=KEEP)

    @cached_property
    def grammars(self) -> Grammars:
        """For answers that must have a form."""
        return Grammars(self.tokenizer, self.prompter.encode_plain, self.engine.model.vocab_size, self.engine.eos_ids)


def open_served(
    evidence: Evidence,
    name: str,
    *,
    dtype: str = "auto",
    options: EngineOptions | None = None,
    num_drafts: int = 0,
    device: str = "cpu",
) -> ServedModel:
    """Load everything. Raises TargetError for what cannot be served."""
    options = options or EngineOptions()
    try:
        tokenizer: Tokenizer = evidence.get("tokenizer")
        json_files = evidence.get("json_files")
    except EvidenceMissing as missing:
        raise TargetError(f"{evidence.get('source').path}: cannot be served: {missing}") from None
    loader = load_as_stored if dtype == "auto" else load_model
    chosen = _dtype(evidence) if dtype == "auto" else DTYPES[dtype]
    model, store = loader(evidence, chosen, is_batch_invariant=options.is_batch_invariant, device=device)
    claims = evidence.find("token_claims") or ()
    engine = LLMEngine(
        model,
        options,
        eos_ids=sorted(read_stop_ids(claims, tokenizer.ids_by_piece.get).all),
        drafter=NgramDrafter(num_drafts) if num_drafts else None,
    )
    prompter = Prompter(
        tokenizer,
        evidence.find("chat_templates") or (),
        evidence.find("special_token_texts"),
        _object(json_files, "tokenizer_config.json"),
    )
    return ServedModel(
        name=name,
        engine=engine,
        tokenizer=tokenizer,
        prompter=prompter,
        defaults=_defaults(_object(json_files, "generation_config.json")),
        num_bytes=dict(store.num_bytes),
        rounding=store.rounding,
    )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(evidence: Evidence) -> torch.dtype:
    """As stored, bf16 where the config does not say."""
    try:
        text = evidence.get("model_config").text
    except EvidenceMissing as missing:
        raise TargetError(f"{evidence.get('source').path}: cannot be served: {missing}") from None
    stored = str(text.get("dtype") or text.get("torch_dtype"))
    return DTYPES[STORED.get(stored, "bf16")]


def _object(json_files: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = json_files[name].value if name in json_files else None
    return value if isinstance(value, dict) else {}


def _defaults(generation_config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Numbers only: a null there says nothing."""
    found = {name: generation_config.get(name) for name in PASSED}
    kept = {name: value for name, value in found.items() if type(value) in (int, float)}
    return msgspec.convert(kept, dict[str, int | float])
