"""Remake docs/hidden_faults.md: six faults below healthy INT4 noise, what an endpoint would say, and what degarble says.

Each fault is planted in SmolLM2-135M-Instruct in the form it belongs to. The weights are then read back by our own
readers, as an engine that does not notice would read them, and run in fp32 by transformers: KL divergence from the
undamaged bf16 model over the texts below, and the greedy answer to one question. What degarble says is obtained in the
same run. Run: python scripts/hidden_faults.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.real.conftest import model_path

from degarble.api import check_source
from degarble.checkpoint.interface import Source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.formats.interface import StoredModule
from degarble.target import open_target

LAYER = "model.layers.12."
QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
TEXTS = (
    "The lighthouse keeper wrote down the weather every evening: wind from the north-west, the glass falling, a ship "
    "two miles out with her lamps lit. In the morning the storm had gone and the beach was covered with timber.",
    "def moving_average(values, window):\n    total = 0.0\n    result = []\n    for i, value in enumerate(values):\n"
    "        total += value\n        if i >= window:\n            total -= values[i - window]\n"
    "        result.append(total / min(i + 1, window))\n    return result\n",
    "Water boils at a lower temperature on a mountain, because the air presses on it less. A cook who follows a recipe "
    "from the valley therefore has to wait longer for the potatoes, although the water seems just as busy.",
    "If a train leaves at nine and travels at sixty miles an hour, it has covered thirty miles by half past nine. A "
    "second train that leaves at half past nine and travels at ninety miles an hour catches it after one hour.",
)
NEW_TOKENS = 16

Plant = Callable[[Workspace, Evidence], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """One row."""

    what: str
    form: str
    plant: Plant
    reads_raw: bool = False
    """Whether a weight without its scale is read as raw codes, as loaders do."""
    needs_reference: bool = False


def no_scale(work: Workspace, evidence: Evidence) -> None:
    """The scale of one k_proj is not there."""
    work.drop(evidence.get("modules")[f"{LAYER}self_attn.k_proj"].part("scale").name)


def zero_scales(*names: str) -> Plant:
    """All scales of some modules are zero."""

    def plant(work: Workspace, evidence: Evidence) -> None:
        for name, module in evidence.get("modules").items():
            if name.startswith(LAYER) and name.endswith(names) and module.form.is_quantized:
                part = module.part("scale")
                work.set(part.name, np.zeros_like(module.reader.read(part)))

    return plant


def layers_exchanged(work: Workspace, evidence: Evidence) -> None:
    """Layers 3 and 4 stand in each other's place."""
    for name, info in evidence.get("tensors").items():
        if name.startswith("model.layers.3."):
            other = evidence.get("tensors")[name.replace("layers.3.", "layers.4.")]
            first, second = (np.array(evidence.get("reader").read(one)) for one in (info, other))
            work.set(info.name, second)
            work.set(other.name, first)


def awq_order(work: Workspace, evidence: Evidence) -> None:
    """Codes of one layer packed in AWQ's order of nibbles, in a GPTQ file."""
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    for name, module in evidence.get("modules").items():
        if name.startswith(LAYER) and module.form.is_quantized:
            codes = module.codes()
            shuffled = codes.reshape(codes.shape[0], -1, 8)[:, :, order].reshape(codes.shape)
            for tensor, array in module.replace(codes=shuffled).items():
                work.set(tensor, array)


def fold_without_v(work: Workspace, evidence: Evidence) -> None:
    """A norm divided by s; q_proj and k_proj multiplied by s, v_proj forgotten."""
    modules, reader = evidence.get("modules"), evidence.get("reader")
    norm = modules[f"{LAYER}input_layernorm"].payload
    old = reader.read(norm).astype(np.float32)
    scale = np.exp(np.random.default_rng(7).normal(0, 0.25, old.shape)).astype(np.float32)
    dtype = reader.read(norm).dtype
    work.set(norm.name, (old / scale).astype(dtype))
    for leaf in ("q_proj", "k_proj"):
        weight = modules[f"{LAYER}self_attn.{leaf}"].payload
        work.set(weight.name, (reader.read(weight).astype(np.float32) * scale).astype(dtype))


CASES = (
    Hidden(what="one k_proj without its scale (FP8)", form="fp8", plant=no_scale, reads_raw=True),
    Hidden(what="one down_proj whose scales are zero (FP8)", form="fp8", plant=zero_scales("down_proj")),
    Hidden(what="all scales of a layer zero (FP8)", form="fp8", plant=zero_scales("_proj")),
    Hidden(what="layers 3 and 4 exchanged (FP8)", form="fp8", plant=layers_exchanged, needs_reference=True),
    Hidden(what="AWQ's nibble order in one layer (GPTQ)", form="gptq", plant=awq_order),
    Hidden(what="a fold that forgot v_proj (bf16)", form="bf16", plant=fold_without_v, needs_reference=True),
)


@cache
def tokenizer() -> Tokenizer:
    """The model's own."""
    return Tokenizer.from_file(str(model_path("bf16") / "tokenizer.json"))


def weights(source: Source, reads_raw: bool) -> dict[str, torch.Tensor]:
    """Every parameter in fp32, by its name in transformers."""
    found: dict[str, torch.Tensor] = {}
    for module in Evidence(source, Settings()).get("modules").values():
        if module.canonical is not None:
            found[f"{module.canonical}.weight"] = torch.from_numpy(np.array(_values(module, reads_raw), np.float32))
    return found


def _values(module: StoredModule, reads_raw: bool) -> Any:
    if reads_raw and module.form.missing:
        return module.array("payload").astype(np.float32)
    return module.dequantize()


class Judge:
    """Runs weights and compares them with the healthy model."""

    def __init__(self) -> None:
        config = msgspec.json.decode((model_path("bf16") / "config.json").read_bytes())
        config.pop("quantization_config", None)
        self._model = LlamaForCausalLM(LlamaConfig(**config)).eval().float()
        self._healthy: list[torch.Tensor] | None = None

    def run(self, parameters: Mapping[str, torch.Tensor]) -> tuple[float, float, str]:
        """Mean KL divergence, share of equal first choices, and the answer."""
        lost = self._model.load_state_dict(parameters, strict=False)
        assert set(lost.missing_keys) <= {"lm_head.weight"}, lost.missing_keys[:3]
        self._model.tie_weights()
        with torch.inference_mode():
            found = [
                self._model(torch.tensor([tokenizer().encode(text).ids])).logits[0].log_softmax(-1) for text in TEXTS
            ]
            if self._healthy is None:
                self._healthy = found
            pairs = list(zip(self._healthy, found, strict=True))
            kl = torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in pairs]).mean()
            same = torch.cat([p.argmax(-1) == q.argmax(-1) for p, q in pairs]).float().mean()
            ids = tokenizer().encode(QUESTION).ids
            out = self._model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=2)
        return float(kl), float(same), tokenizer().decode(out[0, len(ids) :].tolist())


def first_cause(source: Source, needs_reference: bool, healthy: Source) -> str:
    """What degarble names first."""
    reference = Evidence(healthy, Settings()) if needs_reference else None
    report = check_source(source, Settings(), reference)
    if not report.causes:
        return "nothing"
    finding = report.causes[0].finding
    return f"{finding.rule} {finding.name}, {finding.severity}, at {finding.location.name()}"


def main() -> None:
    """Measure everything and write the page."""
    judge = Judge()
    rows = []
    base = open_target(model_path("bf16"))
    for what, form in (("undamaged bf16", "bf16"), ("healthy FP8", "fp8"), ("healthy INT4, GPTQ", "gptq")):
        healthy = open_target(model_path(form))
        rows.append((what, *judge.run(weights(healthy, False)), first_cause(healthy, False, base)))
    for case in CASES:
        healthy = open_target(model_path(case.form))
        work = Workspace(healthy)
        case.plant(work, Evidence(healthy, Settings()))
        measured = judge.run(weights(work.source(), case.reads_raw))
        said = first_cause(work.source(), case.needs_reference, healthy if case.form == "bf16" else base)
        rows.append((case.what, *measured, said + (" (with `--reference`)" if case.needs_reference else "")))
        print(rows[-1], flush=True)
    table = "\n".join(
        f"| {what} | {kl:.3f} | {same:.3f} | {answer!r} | {said} |" for what, kl, same, answer, said in rows
    )
    (ROOT / "docs" / "hidden_faults.md").write_text(
        "<!-- Generated by scripts/hidden_faults.py -->\n\n# Faults below healthy INT4 noise\n\n"
        "Planted in SmolLM2-135M-Instruct. KL divergence (nats per token) and share of equal first choices are against "
        "the undamaged\nbf16 model on four short texts, in fp32; the answer is greedy, to *What is the capital of "
        "France?* An endpoint test passes\nmost of these; a look at the bytes does not.\n\n"
        "| fault | KL | same first choice | answer | degarble's first cause |\n|---|---|---|---|---|\n" + table + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
