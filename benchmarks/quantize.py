"""Quality, time and memory of `degarble quantize`: mean KL at bits a weight, on text that no method saw.

    python benchmarks/quantize_texts.py MODEL TEXTS
    python benchmarks/quantize.py MODEL TEXTS [--run gptq:W4A16_ASYM:64 …] [--also FOLDER …] [--keep FOLDER]

Each run is a process of its own, so that its time and its peak of memory are its own; both include imports. Folders of other
tools (`--also`), made of the same `calibration.jsonl`, are judged by the same walk: any layout that degarble reads. KL is of
the original to the quantised model, in nats, the mean over all evaluation tokens with its standard error; bits count
everything stored for the linears of the layers, over their weights. One JSON row a line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RUN = """
import json, resource, sys, time
import msgspec
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe

quantize(sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3], type=Recipe))
peak = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"peak_rss_mb": round(peak.ru_maxrss / 1024), "cpu_seconds": round(peak.ru_utime + peak.ru_stime, 1)}))
"""
DEFAULT_RUNS = ("rtn:W4A16_ASYM:64", "awq:W4A16_ASYM:64", "gptq:W4A16_ASYM:64", "auto:W4A16_ASYM:64")


def states(model: Any, batch: Any) -> Any:
    """Hidden states behind the last layer, a chunk of sequences at a time. [tokens, hidden]"""
    import torch

    from degarble_engine.quantize.calibration_stream import chunks_of

    chunks = chunks_of(model, batch)
    for index in range(model.num_layers):
        with torch.no_grad(), model.layer(index) as layer:
            for chunk in chunks:
                chunk.hidden = chunk.model.run(index, layer, chunk.hidden)
    return torch.cat([chunk.hidden[chunk.valid] for chunk in chunks])


def bits_of(folder: str) -> float:
    """Stored bits a weight of the linears of the layers."""
    from degarble.evidence import Evidence, Settings
    from degarble.target import open_target

    modules = Evidence(open_target(folder), Settings()).get("modules")
    linears = [one for one in modules.values() if one.kind == "linear" and one.layer is not None and one.form.shape]
    stored = sum(part.nbytes for one in linears for suffix, part in one.parts.items() if suffix != "bias")
    weights = 0
    for one in linears:
        size = 1
        for axis in one.form.shape or ():
            size *= axis
        weights += size
    return 8 * stored / weights


def judged(folder: str, reference: Any, wanted: Any, batch: Any) -> dict[str, float]:
    """KL and agreement of one folder."""
    from degarble_engine.numerics.divergence import divergence
    from degarble_engine.numerics.walked_model import WalkedModel

    model = WalkedModel.open(folder)
    found = divergence(reference, wanted, model, states(model, batch))
    error = float(found.by_token.std()) / found.by_token.numel() ** 0.5
    return {"kl": round(found.kl, 4), "kl_error": round(error, 4), "top1": round(found.top1_agreement, 4)}


def run(model: str, texts: Path, out: str, spec: str) -> dict[str, Any]:
    """Quantise once. `method:scheme:group`, the group left out where the scheme has none."""
    method, scheme, *group = spec.split(":")
    recipe = {
        "method": method, "scheme": scheme, "group_size": int(group[0]) if group else None,
        "calibration": str(texts / "calibration.jsonl"),
    }  # fmt: skip
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", RUN, model, out, json.dumps(recipe)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{spec}: {done.stderr[-500:]}")
    return {"wall_seconds": round(time.monotonic() - started, 1), **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    """A row a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--run", nargs="*", default=DEFAULT_RUNS)
    parser.add_argument("--also", nargs="*", default=())
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()

    from degarble_engine.numerics.tokens import batch_of
    from degarble_engine.numerics.walked_model import WalkedModel

    rows = [json.loads(line)["ids"] for line in (options.texts / "evaluation.jsonl").read_text().splitlines()]
    batch, reference = batch_of(rows, "evaluation"), WalkedModel.open(options.model)
    wanted = states(reference, batch)
    with tempfile.TemporaryDirectory() as scratch:
        for spec in options.run:
            out = str((options.keep or Path(scratch)) / spec.replace(":", "-"))
            row = {"run": spec, **run(options.model, options.texts, out, spec)}
            print(
                json.dumps(row | {"bits": round(bits_of(out), 3), **judged(out, reference, wanted, batch)}), flush=True
            )
    for folder in options.also:
        print(
            json.dumps({"run": folder, "bits": round(bits_of(folder), 3), **judged(folder, reference, wanted, batch)})
        )


if __name__ == "__main__":
    main()
