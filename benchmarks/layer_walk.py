"""The layer walk on the shapes of an 8B Llama: peak memory in layers, and time against transformers' own forward.

Targets: walking peaks below 2.5 layers (as held, in fp32) above what was there before, whatever the depth; time per layer at
most 1.3 times the sum of the forwards that have to be made. A walk makes one for each model; `compare` makes four: the
reference, the candidate, the candidate on the reference's input, and the noise floor. The peer is transformers' model with
all weights in memory in fp32: it loads nothing. One JSON row a line.

    python benchmarks/layer_walk.py [--layers 3] [--tokens 512] [--deep 32] [--memory-only]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from llama_shaped import CONFIG, HIDDEN, INTER, SHAPES, VOCAB, make

LAYER_BYTES = 4 * sum(out * given for out, given in SHAPES.values())
"""Of one layer in fp32, as a walk holds it."""
MB, ROUNDS = 1e6, 3


def sparse(folder: Path, num_layers: int) -> Path:
    """A checkpoint of zeros that takes no room on disk: holes in a file, norms of ones, bf16."""
    import numpy as np

    folder.mkdir(parents=True)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,),
                                          "lm_head.weight": (VOCAB, HIDDEN)}  # fmt: skip
    for layer in range(num_layers):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in SHAPES.items()}
        shapes |= {f"model.layers.{layer}.{n}_layernorm.weight": (HIDDEN,) for n in ("input", "post_attention")}
    header, offset, ones = {}, 0, []
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        ones += [(offset, size)] if len(shape) == 1 else []
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        begin = file.tell()
        for at, size in ones:
            file.seek(begin + at)
            file.write(b"\x80\x3f" * (size // 2))
        file.truncate(begin + offset)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": num_layers}))
    return folder


def peak_bytes() -> int:
    """Most memory this process had so far. `ru_maxrss` would begin with the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def walked(folder: Path, num_tokens: int) -> dict[str, Any]:
    """Peak of one walk above what the imports took; in a process of its own."""
    from degarble_engine.numerics.tokens import random_batch
    from degarble_engine.numerics.walk import LayerWalk
    from degarble_engine.numerics.walked_model import WalkedModel

    batch = random_batch(VOCAB, 1, num_tokens)
    model = WalkedModel.open(str(folder))
    before = peak_bytes()
    for _ in LayerWalk([model], batch):
        pass
    activations = 4 * num_tokens * (4 * HIDDEN + 3 * INTER)
    used = peak_bytes() - before - activations
    return {"layers": model.num_layers, "tokens": num_tokens, "peak_mb": round(used / MB), "layer_mb": round(LAYER_BYTES / MB),
            "peak_in_layers": round(used / LAYER_BYTES, 2)}  # fmt: skip


def timed(folder: Path, candidate: Path, num_tokens: int) -> list[dict[str, Any]]:
    """Seconds a layer: transformers' forward, a walk of one model, and `compare` of two, taking turns."""
    import torch
    from transformers import AutoModelForCausalLM

    from degarble_engine.comparison import Question, compare_models
    from degarble_engine.numerics.tokens import random_batch
    from degarble_engine.numerics.walk import LayerWalk
    from degarble_engine.numerics.walked_model import WalkedModel

    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    models = {"walk, bf16": WalkedModel.open(str(folder)), "walk, INT4": WalkedModel.open(str(candidate))}
    batch = random_batch(VOCAB, num_tokens // 128, 128)
    layers = plain.config.num_hidden_layers
    seconds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        start = time.perf_counter()
        with torch.no_grad():
            plain.model(input_ids=batch.ids, use_cache=False)
        seconds.setdefault("plain", []).append((time.perf_counter() - start) / layers)
        for name, model in models.items():
            start = time.perf_counter()
            for _ in LayerWalk([model], batch):
                pass
            seconds.setdefault(name, []).append((time.perf_counter() - start) / layers)
    stamps: list[float] = []
    del plain
    compare_models(
        models["walk, INT4"], models["walk, bf16"], Question(progress=lambda *_: stamps.append(time.perf_counter()))
    )
    compared = [after - before for before, after in pairwise(stamps)]
    one = statistics.median(seconds["plain"])
    rows = [_row(name, statistics.median(seconds[name]), one, 1) for name in models]
    scale = 512 / batch.num_tokens  # compare has 4 x 128 random tokens where there is no tokenizer
    return [*rows, _row("compare, INT4 against bf16", statistics.median(compared), one * scale, 4)]


def _row(name: str, seconds: float, plain: float, forwards: int) -> dict[str, Any]:
    return {"what": name, "s_per_layer": round(seconds, 2), "plain_s_per_layer": round(plain, 2), "forwards": forwards,
            "ratio": round(seconds / (plain * forwards), 2)}  # fmt: skip


def apart(*arguments: str) -> list[dict[str, Any]]:
    """The rows of a process of its own."""
    found = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in found.splitlines() if line.startswith("{")]


def main() -> None:
    """Make the checkpoints, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--deep", type=int, default=32)
    parser.add_argument("--walked", type=Path, help="only the peak of a walk of this folder")
    parser.add_argument("--memory-only", action="store_true", help="only peaks, of checkpoints of zeros")
    given = parser.parse_args()
    if given.walked is not None:
        print(json.dumps(walked(given.walked, given.tokens)))
        return
    with tempfile.TemporaryDirectory(prefix="degarble-bench.") as name:
        folder = Path(name)
        for depth in (2, given.deep):
            (row,) = apart("--walked", str(sparse(folder / f"sparse-{depth}", depth)), "--tokens", "16")
            print(json.dumps({"what": "memory of a walk, bf16"} | row), flush=True)
        if given.memory_only:
            return
        make(folder / "bf16", "bf16", given.layers * LAYER_BYTES // 2 + 4 * VOCAB * HIDDEN, None)
        make(folder / "int4", "int4", given.layers * int(LAYER_BYTES * 0.1289) + 4 * VOCAB * HIDDEN, None)
        (row,) = apart("--walked", str(folder / "int4"), "--tokens", "16")
        print(json.dumps({"what": "memory of a walk, INT4"} | row), flush=True)
        for row in timed(folder / "bf16", folder / "int4", given.tokens):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
