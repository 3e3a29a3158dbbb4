"""Healthy forms by the field's own tools, one function a tool, each run in an environment that has the tool.

    python scripts/calibration/tools.py llm-compressor      from the repository, with PYTHONPATH=src:.

Every tool is fed the base `smooth`; what comes out is kept in `.work/healthy/tools`. A form that its tool refuses is
named and left out.
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from scripts.calibration.bases import HEALTHY, ROOT, base, calibration_text

TOOLS = HEALTHY / "tools"
GGUF = ROOT / ".work" / "real" / "smollm2-q4_1.gguf"
SEQUENCE = 256

Make = Callable[[Path], None]
"""Writes one checkpoint into a folder that does not exist yet."""


def model_and_tokenizer() -> tuple[Any, Any]:
    """The base in transformers, in bf16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(base("smooth"))
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16), AutoTokenizer.from_pretrained(folder)


def samples(tokenizer: Any, count: int = 8) -> list[list[int]]:
    """Token ids of the calibration text."""
    ids = tokenizer(calibration_text())["input_ids"]
    return [ids[start : start + SEQUENCE] for start in range(0, count * SEQUENCE, SEQUENCE)]


def gguf_py() -> Iterator[tuple[str, Make]]:
    """gguf's own quantisers in Python."""
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        yield kind.lower(), partial(_gguf, kind=kind)


def _gguf(out: Path, *, kind: str) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    from degarble.checkpoint.workspace import Workspace
    from degarble.target import open_target

    work, rng = Workspace(open_target(GGUF)), np.random.default_rng(2)
    shard = work.shard(GGUF.name)
    reader = _gguf_tensors()
    for name, (raw, stored) in reader.items():
        if stored.name == "Q4_1":
            values = dequantize(raw, stored)
            groups = values.reshape(-1, 32)
            step = (groups.max(axis=1) - groups.min(axis=1))[:, None] / 15
            smooth = (groups + rng.uniform(-0.5, 0.5, groups.shape) * step).reshape(values.shape).astype(np.float32)
            shard.set(name, f"GGUF:{kind}", values.shape, quantize(smooth, GGMLQuantizationType[kind]).tobytes())
    work.save(out)


def _gguf_tensors() -> Mapping[str, tuple[Any, Any]]:
    from gguf import GGUFReader

    return {one.name: (one.data, one.tensor_type) for one in GGUFReader(str(GGUF)).tensors}


def quanto() -> Iterator[tuple[str, Make]]:
    """optimum-quanto's 8-bit weights."""
    for kind in ("qint8", "qfloat8"):
        yield kind, partial(_quanto, kind=kind)


def _quanto(out: Path, *, kind: str) -> None:
    import optimum.quanto as tool

    model, tokenizer = model_and_tokenizer()
    made = tool.QuantizedModelForCausalLM.quantize(model, weights=getattr(tool, kind), exclude="lm_head")
    made.save_pretrained(str(out))
    tokenizer.save_pretrained(str(out))


def torchao() -> Iterator[tuple[str, Make]]:
    """torchao through transformers."""
    for kind in ("Int8WeightOnlyConfig", "Float8WeightOnlyConfig"):
        yield kind.removesuffix("Config").lower(), partial(_torchao, kind=kind)


def _torchao(out: Path, *, kind: str) -> None:
    import torchao.quantization as tool
    from transformers import TorchAoConfig

    _loaded(out, TorchAoConfig(getattr(tool, kind)(version=2)))


def bitsandbytes() -> Iterator[tuple[str, Make]]:
    """bitsandbytes through transformers."""
    for kind in ("nf4", "fp4"):
        for double in (False, True):
            options = {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": double}
            yield f"{kind}{'-dq' if double else ''}", partial(_bitsandbytes, options=options)
    yield "int8", partial(_bitsandbytes, options={"load_in_8bit": True})


def _bitsandbytes(out: Path, *, options: Mapping[str, Any]) -> None:
    from transformers import BitsAndBytesConfig

    _loaded(out, BitsAndBytesConfig(**options))


def _loaded(out: Path, config: Any) -> None:
    """Quantised while it is loaded."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(base("smooth"))
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, quantization_config=config, device_map="cpu"
    )
    model.save_pretrained(str(out))
    AutoTokenizer.from_pretrained(folder).save_pretrained(str(out))


def llm_compressor() -> Iterator[tuple[str, Make]]:
    """llm-compressor: schemes without data, then GPTQ and AWQ."""
    for scheme in ("FP8_BLOCK", "FP8_DYNAMIC", "NVFP4A16", "MXFP4", "W8A8", "W8A16", "W4A16_ASYM"):
        yield scheme.lower(), partial(_llm_compressor, kind="quantization", scheme=scheme)
    for kind, scheme in (("gptq", "W4A16"), ("gptq", "W4A16_ASYM"), ("awq", "W4A16_ASYM"), ("awq", "W4A16")):
        yield f"{kind}-{scheme.lower()}", partial(_llm_compressor, kind=kind, scheme=scheme)


def _llm_compressor(out: Path, *, kind: str, scheme: str) -> None:
    from compressed_tensors.quantization import preset_name_to_scheme
    from datasets import Dataset
    from llmcompressor import oneshot

    model, tokenizer = model_and_tokenizer()
    chosen = preset_name_to_scheme(scheme, ["Linear"])
    if chosen.weights.group_size == 128:  # 576 inputs are no multiple
        chosen.weights.group_size = 64
    recipe = _modifier(kind)(config_groups={"group_0": chosen}, ignore=["lm_head"])
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in samples(tokenizer)]
    data = {"dataset": Dataset.from_list(rows), "num_calibration_samples": len(rows), "max_seq_length": SEQUENCE}
    oneshot(model=model, recipe=[recipe], **(data if kind != "quantization" else {}))
    model.save_pretrained(str(out), save_compressed=True)
    tokenizer.save_pretrained(str(out))


def _modifier(kind: str) -> Any:
    if kind == "awq":
        from llmcompressor.modifiers.awq import AWQModifier

        return AWQModifier
    from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier

    return GPTQModifier if kind == "gptq" else QuantizationModifier


def auto_round() -> Iterator[tuple[str, Make]]:
    """auto-round: rounding only, and with a few steps of its optimiser; GGUF's K-quants too."""
    for bits, symmetric, layout, iterations in (
        (4, True, "auto_gptq", 0),
        (4, False, "auto_gptq", 0),
        (4, True, "auto_gptq", 5),
        (3, True, "auto_gptq", 0),
        (2, False, "auto_gptq", 0),
        (4, False, "auto_awq", 0),
    ):
        options = {"bits": bits, "group_size": 64, "sym": symmetric, "iters": iterations}
        name = f"{layout}-{bits}b-{'sym' if symmetric else 'asym'}-{iterations}"
        yield name, partial(_auto_round, layout=layout, options=options)
    for kind in ("q4_k_m", "q5_k_s", "q3_k_m", "q2_k_s", "q6_k"):
        yield f"gguf-{kind}", partial(_auto_round, layout=f"gguf:{kind}", options={"iters": 0})


def _auto_round(out: Path, *, layout: str, options: Mapping[str, Any]) -> None:
    from auto_round import AutoRound

    model, tokenizer = model_and_tokenizer()
    scheme = {"scheme": layout} if layout.startswith("gguf") else {}
    texts = HEALTHY / "texts.json"
    texts.write_text(json.dumps([{"text": tokenizer.decode(ids)} for ids in samples(tokenizer)]))
    options = {**options, **scheme, "nsamples": 4, "seqlen": SEQUENCE // 2, "batch_size": 4, "dataset": str(texts)}
    options["disable_opt_rtn"] = not options["iters"]
    made = AutoRound(model, tokenizer, device_map="cpu", **options)
    made.quantize_and_save(str(out), format=layout)


def gptqmodel() -> Iterator[tuple[str, Make]]:
    """GPTQModel."""
    for bits, symmetric, ordered in ((4, True, False), (4, False, True), (3, True, True), (8, True, False)):
        options = {"bits": bits, "group_size": 64, "sym": symmetric, "desc_act": ordered}
        name = f"gptq-{bits}b-{'sym' if symmetric else 'asym'}{'-order' if ordered else ''}"
        yield name, partial(_gptqmodel, options=options)


def _gptqmodel(out: Path, *, options: Mapping[str, Any]) -> None:
    from gptqmodel import GPTQModel, QuantizeConfig

    model = GPTQModel.load(str(base("smooth")), QuantizeConfig(**options), device="cpu")
    rows = samples(model.tokenizer)
    model.quantize([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in rows], batch_size=1)
    model.save(str(out))


def modelopt() -> Iterator[tuple[str, Make]]:
    """NVIDIA's Model Optimizer."""
    for kind in ("FP8_DEFAULT_CFG", "NVFP4_DEFAULT_CFG", "INT4_AWQ_CFG"):
        yield kind.removesuffix("_CFG").lower(), partial(_modelopt, kind=kind)


def _modelopt(out: Path, *, kind: str) -> None:
    import modelopt.torch.quantization as tool
    import torch
    from modelopt.torch.export import export_hf_checkpoint

    model, tokenizer = model_and_tokenizer()
    rows = [torch.tensor([ids]) for ids in samples(tokenizer)]
    model = tool.quantize(model, getattr(tool, kind), lambda one: [one(row) for row in rows])
    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=str(out))
    tokenizer.save_pretrained(str(out))


def llama_cpp() -> Iterator[tuple[str, Make]]:
    """llama.cpp's quantiser, as llama-cpp-python carries it."""
    for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K"):
        yield kind.lower(), partial(_llama_cpp, kind=kind)


def _llama_cpp(out: Path, *, kind: str) -> None:
    import llama_cpp as tool

    out.mkdir(parents=True)
    options = tool.llama_model_quantize_default_params()
    options.nthread, options.allow_requantize = 1, True
    options.ftype = getattr(tool, f"LLAMA_FTYPE_MOSTLY_{kind}")
    source = TOOLS / "gguf-py-q8_0" / GGUF.name
    if tool.llama_model_quantize(str(source).encode(), str(out / "model.gguf").encode(), options):
        raise RuntimeError("llama_model_quantize refused")


MAKERS: Mapping[str, Callable[[], Iterator[tuple[str, Make]]]] = {
    "gguf-py": gguf_py,
    "quanto": quanto,
    "torchao": torchao,
    "bitsandbytes": bitsandbytes,
    "llm-compressor": llm_compressor,
    "auto-round": auto_round,
    "gptqmodel": gptqmodel,
    "modelopt": modelopt,
    "llama.cpp": llama_cpp,
}


def main(tool: str, words: list[str]) -> None:
    """Make what is missing; a form that fails is left out."""
    for name, make in MAKERS[tool]():
        out = TOOLS / f"{tool}-{name}"
        if out.exists() or not all(word in name for word in words):
            continue
        partial_out = out.with_name(f".{out.name}")
        shutil.rmtree(partial_out, ignore_errors=True)
        try:
            make(partial_out)
            partial_out.rename(out)
            print(f"{out.name}: made", flush=True)
        except Exception:
            print(f"{out.name}: refused\n{traceback.format_exc(limit=-3)}", flush=True)
            shutil.rmtree(partial_out, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
