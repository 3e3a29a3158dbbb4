"""How often `degarble compare` names the planted component first, and what it says about healthy files.

    python scripts/attribution_table.py --healthy DIR [--faults N] [--only WORD] [--out FILE]

DIR is what scripts/healthy_forms.py made (`.work/healthy`): SmolLM2-135M in many forms, each beside the bf16 model that it
was quantised from. On every base N faults are planted in the stored values (codes, scales, zero points), the norms, the
config or the tokenizer, each alone, and some three at a time; then the whole command runs on 128 tokens of text.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ml_dtypes
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.finding import Location, Severity
from degarble.formats.interface import StoredModule
from degarble.report.interface import Report
from degarble.target import open_target
from degarble_engine.comparison import Question, compare_models
from degarble_engine.numerics.tokens import built_in_texts
from degarble_engine.numerics.walked_model import WalkedModel

TEXTS = tuple(text[:190] for text in built_in_texts()[:2])
LINEARS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
           "mlp.up_proj", "mlp.down_proj")  # fmt: skip
E4M3 = ml_dtypes.float8_e4m3fn
BASES = (
    ("unquantised", "bases/smooth", "bases/smooth"),
    ("INT4 asymmetric g64", "bases/smooth", "forms/smooth-gptq-4b-g64-asymmetric"),
    ("INT4 compensated (GPTQ)", "bases/smooth", "forms/smooth-gptq-4b-g64-asymmetric-gptq"),
    ("FP8 block", "bases/smooth", "forms/smooth-fp8-block"),
    ("unknown scheme", "bases/smooth", "unknown"),
    ("AWQ fold + INT4", "bases/smooth", "forms/folded-awq-4b-g64-asymmetric-mse"),
)
HEALTHY = (
    "forms/smooth-gptq-4b-g32-asymmetric", "forms/smooth-gptq-4b-g64-symmetric", "forms/smooth-compressed-4b-g64-symmetric-mse",
    "forms/smooth-gptq-4b-g64-asymmetric-gptq-order_stored", "forms/smooth-nvfp4", "forms/smooth-nvfp4-modelopt",
    "forms/smooth-fp8-channel", "forms/smooth-fp8-tensor", "forms/smooth-mxfp4", "forms/smooth-gptq-8b-g64-asymmetric",
    "forms/smooth-int8-8b-channel-narrow", "forms/smooth-mlx-4b-g64-asymmetric", "forms/smooth-gptq-3b-g64-asymmetric",
    "forms/folded-compressed-4b-g64-symmetric", "forms/folded-nvfp4", "tools/llm-compressor-w4a16_asym",
    "tools/bitsandbytes-nf4", "tools/gguf-py-q4_0", "tools/quanto-qint8", "tools/torchao-int8weightonly",
)  # fmt: skip

Expected = list[dict[str, Any]]
"""Places, each by the keys of a location; the first finding must meet one, all findings together all of them."""


@dataclass
class Job:
    """A candidate in which something is planted."""

    work: Workspace
    evidence: Evidence
    rng: random.Random

    def module(self, name: str) -> StoredModule:
        """By its canonical name."""
        return self.evidence.get("modules").by_canonical[name]

    def linear(self, leaves: tuple[str, ...] = LINEARS) -> StoredModule:
        """Any of these, in any layer."""
        return self.module(f"model.layers.{self.rng.randrange(30)}.{self.rng.choice(leaves)}")

    def put(self, module: StoredModule, **parts: Array) -> Expected:
        """Write new codes, scales or zeros."""
        for tensor, array in module.replace(**parts).items():
            self.work.set(tensor, array)
        return [{"module": module.canonical}]


def units(module: StoredModule) -> Array:
    """Stored values without their scales."""
    codes = module.codes()
    scheme = module.form.scheme
    if scheme is None:
        return np.asarray(codes.astype(np.float32))
    if scheme.type == "float":
        return np.asarray(codes.view(E4M3).astype(np.float32))
    zeros, index = module.zeros(), module.group_index()
    offset = zeros[:, index] if zeros is not None and index is not None else 0
    return np.asarray(codes.astype(np.float32) - offset)


def encoded(module: StoredModule, values: Array) -> Array:
    """Undo `units`."""
    scheme = module.form.scheme
    if scheme is None:
        return values
    if scheme.type == "float":
        return values.clip(-448, 448).astype(E4M3).view(np.uint8)
    zeros, index = module.zeros(), module.group_index()
    offset = zeros[:, index] if zeros is not None and index is not None else 0
    top = (1 << (scheme.num_bits or 4)) - 1
    return np.clip(np.round(values + offset), 0, top).astype(module.codes().dtype)


def on_units(
    change: Callable[[Array, random.Random], Array], leaves: tuple[str, ...] = LINEARS
) -> Callable[[Job], Expected]:
    """A fault in the codes."""

    def plant(job: Job) -> Expected:
        module = job.linear(leaves)
        return job.put(module, codes=encoded(module, change(units(module).copy(), job.rng)))

    return plant


def on_scales(
    change: Callable[[Array, random.Random], Array], leaves: tuple[str, ...] = LINEARS
) -> Callable[[Job], Expected]:
    """A fault in the scales; in the values where there are none."""

    def plant(job: Job) -> Expected:
        module = job.linear(leaves)
        if module.form.scheme is None:
            factors = change(np.ones((module.codes().shape[0], module.codes().shape[1] // 64), np.float32), job.rng)
            return job.put(module, codes=units(module) * np.repeat(factors, 64, 1))
        return job.put(module, scales=change(module.scales().astype(np.float32).copy(), job.rng))

    return plant


def rows_of(values: Array, rng: random.Random, factor: float, count: int = 1) -> Array:
    """Some rows, scaled."""
    rows = rng.sample(range(values.shape[0]), min(count, values.shape[0]))
    values[rows] *= factor
    return values


def pairs_swapped(values: Array, _: random.Random) -> Array:
    """Neighbouring columns exchanged, as by swapped nibbles."""
    return values.reshape(values.shape[0], -1, 2)[:, :, ::-1].reshape(values.shape)


def awq_order(values: Array, _: random.Random) -> Array:
    """Columns in the order of AWQ's nibbles."""
    return values.reshape(values.shape[0], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(values.shape)


def noisy(share: float) -> Callable[[Array, random.Random], Array]:
    """Noise of a share of the standard deviation."""
    return lambda values, rng: (
        values
        + np.random.default_rng(rng.randrange(1 << 30)).normal(0, share * values.std(), values.shape).astype(np.float32)
    )


def gguf_order(values: Array, _: random.Random) -> Array:
    """Rotary rows in pairs."""
    return values.reshape(-1, 2, 32, values.shape[1]).transpose(0, 2, 1, 3).reshape(values.shape)


def zero_point(job: Job) -> Expected:
    """Zero points one too large; a constant offset where there are none."""
    module = job.linear()
    zeros = module.zeros()
    if zeros is not None:
        return job.put(module, zeros=np.clip(zeros + 1, 0, 15))
    values = units(module)
    return job.put(module, codes=encoded(module, values + 0.15 * values.std()))


def exchanged(one: str, other: str) -> Callable[[Job], Expected]:
    """Two modules of one layer in each other's place."""

    def plant(job: Job) -> Expected:
        layer = job.rng.randrange(30)
        first, second = (job.module(f"model.layers.{layer}.{leaf}") for leaf in (one, other))
        for suffix in first.parts:
            mine, theirs = (np.array(m.reader.read(m.parts[suffix])) for m in (first, second))
            job.work.set(first.parts[suffix].name, theirs)
            job.work.set(second.parts[suffix].name, mine)
        return [{"module": first.canonical}, {"module": second.canonical}]

    return plant


def layers_exchanged(job: Job) -> Expected:
    """Two neighbouring layers in each other's place."""
    layer = job.rng.randrange(2, 27)
    for name, info in job.evidence.get("tensors").items():
        if name.startswith(f"model.layers.{layer}."):
            other = job.evidence.get("tensors")[name.replace(f"layers.{layer}.", f"layers.{layer + 1}.")]
            mine, theirs = (np.array(job.evidence.get("reader").read(one)) for one in (info, other))
            job.work.set(info.name, theirs)
            job.work.set(other.name, mine)
    return [{"layer": layer}, {"layer": layer + 1}]


def norm(change: Callable[[Array], Array]) -> Callable[[Job], Expected]:
    """A fault in the gain of a norm."""

    def plant(job: Job) -> Expected:
        leaf = job.rng.choice(("input_layernorm", "post_attention_layernorm"))
        module = job.module(f"model.layers.{job.rng.randrange(1, 29)}.{leaf}")
        values = module.dequantize()
        return job.put(module, codes=change(values.copy()))

    return plant


def config(key: str, value: Any) -> Callable[[Job], Expected]:
    """Another number in config.json."""

    def plant(job: Job) -> Expected:
        values = job.work.json("config.json")
        rope = values.get("rope_parameters")
        if key == "rope_theta" and isinstance(rope, dict):
            rope[key] = value
            return [{"file": "config.json", "key": "rope_parameters"}]
        values[key] = value
        return [{"file": "config.json", "key": key}]

    return plant


def forgotten_fold(job: Job) -> Expected:
    """A norm divided by s, and one of three consumers not multiplied (others are, in their values)."""
    layer = job.rng.randrange(1, 29)
    gain = job.module(f"model.layers.{layer}.input_layernorm")
    values = gain.dequantize()
    scale = np.exp(np.random.default_rng(layer).normal(0, 0.4, values.shape)).astype(np.float32)
    job.put(gain, codes=values / scale)
    forgotten = job.rng.choice(("q_proj", "k_proj", "v_proj"))
    for leaf in ("q_proj", "k_proj", "v_proj"):
        module = job.module(f"model.layers.{layer}.self_attn.{leaf}")
        if leaf != forgotten:
            job.put(module, codes=module.dequantize() * scale)
    return [{"module": f"model.layers.{layer}.self_attn.{forgotten}"}]


def not_finite(job: Job) -> Expected:
    """One NaN."""
    module = job.linear()
    if module.form.scheme is None:
        values = units(module)
        values[3, 5] = np.nan
        return job.put(module, codes=values)
    scales = module.scales().astype(np.float32).copy()
    scales[0, 0] = np.nan
    return job.put(module, scales=scales)


def embedding_scaled(job: Job) -> Expected:
    """The embedding, 5 % too large."""
    module = job.module("model.embed_tokens")
    return job.put(module, codes=module.dequantize() * 1.05)


def huge_element(values: Array, rng: random.Random) -> Array:
    """One value fifty times the largest, or as large as codes go."""
    values[rng.randrange(values.shape[0]), rng.randrange(values.shape[1])] = 50 * np.abs(values).max()
    return values


FAULTS: dict[str, Callable[[Job], Expected]] = {
    "all zero": on_units(lambda values, _: values * 0),
    "sign flipped": on_units(lambda values, _: -values),
    "columns rolled by 8": on_units(lambda values, _: np.roll(values, 8, 1)),
    "nibbles swapped": on_units(pairs_swapped),
    "AWQ order": on_units(awq_order),
    "rows in GGUF order": on_units(gguf_order, ("self_attn.q_proj", "self_attn.k_proj")),
    "eight rows zero": on_units(lambda values, rng: rows_of(values, rng, 0.0, 8)),
    "one row doubled": on_units(lambda values, rng: rows_of(values, rng, 2.0)),
    "noise 0.25 std": on_units(noisy(0.25)),
    "noise 0.5 std": on_units(noisy(0.5)),
    "scale 0.85": on_scales(lambda scales, _: scales * 0.85),
    "scale 1.2": on_scales(lambda scales, _: scales * 1.2),
    "scale 0.95": on_scales(lambda scales, _: scales * 0.95),
    "scales rolled by a group": on_scales(lambda scales, _: np.roll(scales, 1, -1)),
    "scales zero": on_scales(lambda scales, _: scales * 0),
    "a row's scale x16": on_scales(lambda scales, rng: rows_of(scales, rng, 16.0)),
    "a row's scale x0.5": on_scales(lambda scales, rng: rows_of(scales, rng, 0.5)),
    "zero point + 1": zero_point,
    "k and v exchanged": exchanged("self_attn.k_proj", "self_attn.v_proj"),
    "gate and up exchanged": exchanged("mlp.gate_proj", "mlp.up_proj"),
    "layers exchanged": layers_exchanged,
    "norm x1.1": norm(lambda gain: gain * 1.1),
    "norm ones": norm(np.ones_like),
    "rope theta 10000": config("rope_theta", 10000.0),
    "epsilon 1e-3": config("rms_norm_eps", 1e-3),
    "fold forgotten": forgotten_fold,
    "one NaN": not_finite,
    "one huge element": on_units(huge_element),
    "embedding 1.05": embedding_scaled,
}
PLAIN_ONLY = {"fold forgotten", "one huge element"}


def unknown_scheme(reference: Path, form: Path) -> Workspace:
    """The reference with every linear as Q4_0 gives it back, stored as bf16: rounding without its scales."""
    work = Workspace(open_target(reference))
    by_name = Evidence(open_target(reference), Settings()).get("modules").by_canonical
    for name, module in Evidence(open_target(form), Settings()).get("modules").by_canonical.items():
        if module.form.is_quantized and module.kind == "linear":
            for tensor, array in by_name[name].replace(codes=module.dequantize()).items():
                work.set(tensor, array)
    return work


def candidate_of(healthy: Path, form: str, reference: Path) -> Workspace:
    """A fresh view of a base."""
    if form == "unknown":
        return unknown_scheme(reference, healthy / "forms/smooth-mlx-4b-g64-asymmetric")
    return Workspace(open_target(healthy / form))


def report_of(work: Workspace, reference: WalkedModel) -> Report:
    """What `compare` says."""
    candidate = WalkedModel(Evidence(work.source(), Settings()))
    found: Report = compare_models(candidate, reference, Question(texts=TEXTS))
    return found


def meets(place: Location, wanted: dict[str, Any]) -> bool:
    """Whether a finding points there."""
    found = place.as_dict()
    return all(found.get(key) == value for key, value in wanted.items())


def judged(report: Report, expected: Expected) -> tuple[bool, bool, int, str]:
    """(guilty first, all listed, further errors, the first cause)."""
    causes = [cause.finding for cause in report.causes]
    first = bool(causes) and any(meets(place, one) for one in expected for place in causes[0].all_places)
    places = [place for finding in causes for place in finding.all_places]
    listed = all(any(meets(place, one) for place in places) for one in expected)
    strangers = [
        one for one in causes
        if one.severity is Severity.ERROR and not any(meets(place, e) for e in expected for place in one.all_places)
    ]  # fmt: skip
    return first, listed, len(strangers), f"{causes[0].rule} {causes[0].message[:110]}" if causes else "nothing"


def rows(healthy: Path, num_faults: int, only: str) -> Iterator[str]:
    """Lines of the page."""
    yield "| base | planted | guilty first | all listed | further errors |"
    yield "|---|---|---|---|---|"
    misses = []
    for title, reference_name, form in BASES:
        if only not in title:
            continue
        reference = WalkedModel.open(str(healthy / reference_name))
        counts = [0, 0, 0, 0]
        for names in chosen(form, num_faults, title):
            seed = f"{title} {names}"
            work = candidate_of(healthy, form, healthy / reference_name)
            job = Job(
                work,
                Evidence(candidate_of(healthy, form, healthy / reference_name).source(), Settings()),
                random.Random(seed),
            )
            expected = [place for name in names for place in FAULTS[name](job)]
            start = time.monotonic()
            first, listed, strangers, said = judged(report_of(work, reference), expected)
            for at, one in enumerate((1, first, listed, strangers)):
                counts[at] += int(one)
            print(title, names, expected, "FIRST" if first else "-", "ALL" if listed else "-", strangers, said,
                  f"{time.monotonic() - start:.0f} s", flush=True)  # fmt: skip
            if not first or not listed or strangers:
                misses.append(
                    f"- {title}, {' + '.join(names)} at {expected}: first {first}, all {listed}, {strangers} more; {said}"
                )
        yield f"| {title} | {counts[0]} | {counts[1]} | {counts[2]} | {counts[3]} |"
    yield ""
    yield from misses


def chosen(form: str, number: int, title: str) -> list[tuple[str, ...]]:
    """Single faults in an order by chance, and two draws of three at once."""
    rng = random.Random(title)
    names = [name for name in FAULTS if form.startswith("bases") or name not in PLAIN_ONLY]
    rng.shuffle(names)
    triples = [tuple(rng.sample(names, 3)) for _ in range(2 if number > 4 else 0)]
    return [*((name,) for name in names[:number]), *triples]


def healthy_rows(healthy: Path, only: str) -> Iterator[str]:
    """Lines about files that nobody touched."""
    yield "| healthy file | errors | warnings | KL | first words |"
    yield "|---|---|---|---|---|"
    reference = WalkedModel.open(str(healthy / "bases/smooth"))
    for form in (*(form for _, _, form in BASES), *HEALTHY):
        if only not in form or not (form == "unknown" or (healthy / form).exists()):
            continue
        base = reference
        if form.startswith("tools/"):
            base = (
                WalkedModel.open(str(healthy / "bases/bf16"))
                if (healthy / "bases/bf16/config.json").exists()
                else reference
            )
        target = healthy / form
        files = sorted(target.glob("*.gguf")) if form != "unknown" and target.is_dir() else []
        work = Workspace(open_target(files[0])) if files else candidate_of(healthy, form, healthy / "bases/smooth")
        try:
            report = report_of(work, base)
        except Exception as error:  # a row of the table says so
            line = f"| {form} | could not be compared | | | {type(error).__name__}: {error} |"
        else:
            kl = (report.comparison or {}).get("kl_divergence")
            words = "; ".join(f"{c.finding.rule} {c.finding.message[:90]}" for c in report.causes[:2])
            line = f"| {form} | {report.summary['error']} | {report.summary['warning']} | {kl} | {words} |"
        print(line, flush=True)
        yield line


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--healthy", type=Path, default=Path(__file__).resolve().parent.parent / ".work" / "healthy")
    parser.add_argument("--faults", type=int, default=12)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", choices=("faults", "healthy", "both"), default="both")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines: list[str] = []
    if given.part != "healthy":
        lines += rows(given.healthy, given.faults, given.only)
    if given.part != "faults":
        lines += ["", *healthy_rows(given.healthy, given.only)]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
