"""What transformers answers with a folder's weights and tokenizer: greedy, so that equal folders answer equally.

Plain folders are opened by transformers as a user would. For packed forms transformers needs kernels or packages that
are not there on every machine, so their weights are decoded by `degarble.formats`, whose readers are tested bit by bit
against the tools that write them, and handed to transformers' own model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from degarble.evidence import Evidence, Settings
from degarble.target import open_target

QUESTION = "What is the capital of France?"
MAX_NEW_TOKENS = 16


def answer(folder: Path) -> str:
    """The reply to QUESTION, special tokens left out."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = _model(folder)
    chat = [{"role": "user", "content": QUESTION}]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        output = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
    reply: str = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return reply


def _model(folder: Path) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(folder)
    if getattr(config, "quantization_config", None) is None:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    del config.quantization_config
    modules = Evidence(open_target(folder), Settings()).get("modules")
    weights = {
        f"{module.name}.weight": torch.from_numpy(np.ascontiguousarray(module.dequantize(), np.float32))
        for module in modules.values()
    }
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.generation_config = GenerationConfig.from_pretrained(folder)
    return model.eval()
