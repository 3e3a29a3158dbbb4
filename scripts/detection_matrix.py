"""Remake docs/detection.md: degarble beside seven public linters on 38 planted faults.

The faults and what the linters saw come from a run of the seven tools (mlx-model-doctor, mlx-triage, grit-scan, modelvet,
modelaudit on folders; canary, ggufdoctor, grit-scan, modelvet, modelaudit on GGUF) over the same base: SmolLM2-135M in
INT4 GPTQ g64 and its Q4_1 GGUF. What degarble says is obtained here, in process. Run: python scripts/detection_matrix.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from detection_formats import table
from tests.real.conftest import model_path

from degarble.api import check_source
from degarble.checkpoint.shard_edit import GgufEdit
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.report.interface import Report
from degarble.target import open_target

LAYER = "model.layers.12."
NOBODY = "nobody"


@dataclass(slots=True)
class Case:
    """A checkpoint to break."""

    work: Workspace
    evidence: Evidence

    def edit(self, name: str, **parts: object) -> None:
        """Replace values of one module, given as functions of the old ones."""
        module = self.evidence.get("modules")[name]
        new = {key: change(getattr(module, key)()) for key, change in parts.items()}  # type: ignore[operator]
        for tensor, array in module.replace(**new).items():
            self.work.set(tensor, array)

    def linears(self, prefix: str = "") -> list[str]:
        """Names of the quantised linears."""
        modules = self.evidence.get("modules")
        return [name for name, m in modules.items() if m.form.is_quantized and name.startswith(prefix)]

    def config(self, name: str, key: str, value: object) -> None:
        """Set one key of a JSON file."""
        self.work.json(name)[key] = value

    def plain(self, tensor: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
        """Change a plain tensor."""
        info = self.evidence.get("tensors")[tensor]
        old = self.evidence.get("reader").read(info)
        self.work.set(tensor, change(old.astype(np.float32)).astype(old.dtype))

    @property
    def gguf(self) -> GgufEdit:
        """The GGUF file under edit."""
        edit = self.work.shard(self.evidence.get("gguf").file)
        assert isinstance(edit, GgufEdit)
        return edit

    def raw(self, tensor: str, change: Callable[[np.ndarray], None]) -> None:
        """Change the bytes of a GGUF tensor, as [blocks, 20] of Q4_1 (or [n, 4] of F32)."""
        info = self.evidence.get("tensors")[tensor]
        width = 20 if info.dtype == "GGUF:Q4_1" else 4
        data = np.array(self.evidence.get("reader").raw(info)).reshape(-1, width)
        change(data)
        self.work.overwrite(info.file, info.start, data.tobytes())


def swap_kv(case: Case) -> None:
    """h08: k_proj and v_proj of one layer exchanged."""
    for suffix in ("qweight", "qzeros", "scales", "g_idx"):
        k, v = f"{LAYER}self_attn.k_proj.{suffix}", f"{LAYER}self_attn.v_proj.{suffix}"
        for old, new in ((k, "swap"), (v, k), ("swap", v)):
            case.work.rename(old, new)


def permuted(tokens: list[str], start: int) -> list[str]:
    """Strings rotated behind the specials: every id means another text."""
    return [*tokens[:start], *tokens[start + 1 :], tokens[start]]


def permute_tokenizer(case: Case) -> None:
    """h16: ids of tokenizer.json rotated."""
    vocabulary = case.work.json("tokenizer.json")["model"]["vocab"]
    names = sorted(vocabulary, key=lambda name: vocabulary[name])
    case.work.json("tokenizer.json")["model"]["vocab"] = {n: i for i, n in enumerate(permuted(names, 300))}


def shrink_tokenizer(case: Case) -> None:
    """h17: a tokenizer of 40,000 entries."""
    model = case.work.json("tokenizer.json")["model"]
    model["vocab"] = {name: i for name, i in model["vocab"].items() if i < 40_000}
    model["merges"] = [
        m for m in model["merges"] if "".join(m if isinstance(m, list) else m.split(" ")) in model["vocab"]
    ]


def set_d(value: float) -> Callable[[np.ndarray], None]:
    """Write the fp16 scale of one block."""

    def change(blocks: np.ndarray) -> None:
        blocks[7, :2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)

    return change


def scale_d(blocks: np.ndarray) -> None:
    """d and m of every block times 8."""
    fields = blocks[:, :4].copy().view(np.float16)
    blocks[:, :4] = (fields * np.float16(8)).view(np.uint8)


def swap_nibbles(blocks: np.ndarray) -> None:
    """High and low nibbles exchanged."""
    codes = blocks[:, 4:]
    blocks[:, 4:] = (codes << 4) | (codes >> 4)


def rename_gguf(case: Case) -> None:
    """g14: attn_k and attn_v of one block exchanged."""
    k, v = "blk.12.attn_k.weight", "blk.12.attn_v.weight"
    for old, new in ((k, "swap"), (v, k), ("swap", v)):
        case.gguf.rename(old, new)


def drop_module(case: Case, name: str) -> None:
    """Remove every part of a module."""
    for info in list(case.evidence.get("modules")[name].parts.values()):
        case.work.drop(info.name)


def template_typo(case: Case) -> None:
    """g15: a marker misspelt."""
    text = case.gguf.metadata["tokenizer.chat_template"]
    case.gguf.set_metadata("tokenizer.chat_template", text.replace("<|im_end|>", "<|im_emd|>"))


def truncate(case: Case, file: str) -> None:
    """Cut a megabyte off."""
    case.work.truncate(file, case.work.source().files()[file] - (1 << 20))


DOWN = LAYER + "mlp.down_proj"
Fault = tuple[str, str, str, Callable[[Case], object]]
FOLDER: list[Fault] = [
    ("h01", "all-zero scales of one layer", NOBODY, lambda c: [c.edit(n, scales=np.zeros_like) for n in c.linears(LAYER)]),
    ("h02", "one NaN scale", NOBODY, lambda c: c.edit(DOWN, scales=lambda s: np.where(np.arange(s.size).reshape(s.shape) == 3, np.nan, s))),
    ("h03", "AWQ nibble order everywhere", NOBODY, lambda c: [c.edit(n, codes=awq_order) for n in c.linears()]),
    ("h04", "group_size 32 in config, 64 in tensors", NOBODY, lambda c: c.work.json("config.json")["quantization_config"].update(group_size=32)),
    ("h05", "zero points off by one everywhere", NOBODY, lambda c: [c.edit(n, zeros=lambda z: np.minimum(z + 1, 15)) for n in c.linears()]),
    ("h06", "one RMSNorm x 100", NOBODY, lambda c: c.plain(LAYER + "input_layernorm.weight", lambda w: w * 100)),
    ("h07", "all codes of one module 0x88888888", NOBODY, lambda c: c.edit(DOWN, codes=lambda q: np.full_like(q, 8))),
    ("h08", "k_proj and v_proj exchanged", NOBODY, swap_kv),
    ("h09", "up_proj of one layer missing", "grit-scan (a count in a warning)", lambda c: drop_module(c, LAYER + "mlp.up_proj")),
    ("h10", "num_key_value_heads 9, k_proj has 192 rows", NOBODY, lambda c: c.config("config.json", "num_key_value_heads", 9)),
    ("h11", "rope_theta 100000 -> 10000", NOBODY, lambda c: c.work.json("config.json")["rope_parameters"].update(rope_theta=10000.0)),
    ("h12", "truncated file", "mlx-model-doctor, grit, modelvet, modelaudit", lambda c: truncate(c, "model.safetensors")),
    ("h13", "generation eos 151645", "mlx-model-doctor (warning)", lambda c: c.config("generation_config.json", "eos_token_id", 151645)),
    ("h14", "generation eos 0", "mlx-model-doctor (warning)", lambda c: c.config("generation_config.json", "eos_token_id", 0)),
    ("h15", "foreign special_tokens_map (eos 49153)", NOBODY, lambda c: c.config("special_tokens_map.json", "eos_token", "<|EOT|>")),
    ("h16", "token ids permuted", NOBODY, permute_tokenizer),
    ("h17", "tokenizer of 40,000, vocabulary of 49,152", NOBODY, shrink_tokenizer),
    ("h18", "decoder removed", NOBODY, lambda c: c.config("tokenizer.json", "decoder", None)),
    ("h19", "no chat template", "mlx-model-doctor (warning)", lambda c: c.work.delete("chat_template.jinja")),
    ("h20", "untied without lm_head", "mlx-model-doctor (warning)", lambda c: c.config("config.json", "tie_word_embeddings", False)),
    ("h21", "embedding zero", NOBODY, lambda c: c.plain("model.embed_tokens.weight", np.zeros_like)),
    ("h22", "g_idx all zero", NOBODY, lambda c: c.edit(DOWN, group_index=np.zeros_like)),
    ("h23", "o_proj scales x 16", NOBODY, lambda c: c.edit(LAYER + "self_attn.o_proj", scales=lambda s: s * 16)),
]  # fmt: skip
GGUF: list[Fault] = [
    ("g01", "one tensor zero", NOBODY, lambda c: c.raw("blk.12.ffn_down.weight", lambda b: b.fill(0))),
    ("g02", "NaN block scale", NOBODY, lambda c: c.raw("blk.12.ffn_down.weight", set_d(float("nan")))),
    ("g03", "infinite block scale", NOBODY, lambda c: c.raw("blk.12.ffn_down.weight", set_d(float("inf")))),
    ("g04", "one norm x 100", NOBODY, lambda c: c.raw("blk.12.attn_norm.weight", lambda b: b.__setitem__(slice(None), (b.view(np.float32) * 100).view(np.uint8)))),
    ("g05", "nibbles swapped in one tensor", NOBODY, lambda c: c.raw("blk.12.ffn_down.weight", swap_nibbles)),
    ("g06", "block scales x 8 in one tensor", NOBODY, lambda c: c.raw("blk.12.ffn_down.weight", scale_d)),
    ("g07", "head_count_kv 9", NOBODY, lambda c: c.gguf.set_metadata("llama.attention.head_count_kv", 9)),
    ("g08", "rope base 10000", NOBODY, lambda c: c.gguf.set_metadata("llama.rope.freq_base", 10000.0)),
    ("g09", "block_count 28", "canary (warning)", lambda c: c.gguf.set_metadata("llama.block_count", 28)),
    ("g10", "eos out of range", "canary, ggufdoctor", lambda c: c.gguf.set_metadata("tokenizer.ggml.eos_token_id", 99999)),
    ("g11", "eos 0", "ggufdoctor", lambda c: c.gguf.set_metadata("tokenizer.ggml.eos_token_id", 0)),
    ("g12", "truncated file", "canary, grit, modelvet, modelaudit", lambda c: truncate(c, "smollm2-q4_1.gguf")),
    ("g13", "47,000 token strings permuted", NOBODY, lambda c: c.gguf.set_metadata("tokenizer.ggml.tokens", permuted(c.gguf.metadata["tokenizer.ggml.tokens"], 2000))),
    ("g14", "attn_k and attn_v exchanged", NOBODY, rename_gguf),
    ("g15", "template says <|im_emd|>", "ggufdoctor", template_typo),
]  # fmt: skip
REFERENCE = {"h11", "g08"}
"""A lost rope base is a legal value: only a healthy copy can tell."""


def awq_order(codes: np.ndarray) -> np.ndarray:
    """Outputs in the order in which AWQ interleaves eight."""
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    return codes.reshape(-1, 8, codes.shape[1])[:, order].reshape(codes.shape)


def judge(base: Path, fault: Fault) -> Report:
    """Plant one fault and check."""
    source = open_target(base)
    healthy = Evidence(source, Settings())
    case = Case(Workspace(source), healthy)
    fault[3](case)
    return check_source(case.work.source(), Settings(), healthy if fault[0] in REFERENCE else None)


def verdict(report: Report) -> str:
    """The first cause, or that nothing was found."""
    if not report.causes:
        return "-"
    first = report.causes[0].finding
    return f"{first.rule} {first.name}, {first.severity}"


def main() -> None:
    """Run all and write the page."""
    rows, found = [], 0
    for base, faults in ((model_path("gptq"), FOLDER), (model_path("gguf"), GGUF)):
        for fault in faults:
            said = verdict(judge(base, fault))
            found += said != "-"
            extra = " (with `--reference`)" if fault[0] in REFERENCE and said != "-" else ""
            rows.append(f"| {fault[0]} | {fault[1]} | {fault[2]} | {said}{extra} |")
            print(rows[-1], flush=True)
    seen = sum(row[2] != NOBODY for row in (*FOLDER, *GGUF))
    text = (
        "<!-- Generated by scripts/detection_matrix.py -->\n\n# What is detected\n\n"
        "38 faults planted in SmolLM2-135M-Instruct (INT4 GPTQ g64 by our own packer, and its Q4_1 GGUF), seven public "
        f"linters beside degarble. A tool sees a fault if it adds a finding to its own output on the healthy file.\n\n"
        f"Seen by any of the seven: {seen} of 38. Seen by degarble: {found} of 38. `-`: not seen.\n\n"
        "| | fault | seven linters | degarble's first cause |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "## Faults in values, by stored format\n\nEach fault of each rule that reads values, planted in every checkpoint "
        "of `tests/golden.tar.xz` to which it applies (made by the field's own tools; sizes and places vary: one row, one "
        "block, one expert, one layer, all). Empty: the format has nothing that the rule judges.\n\n"
        + "\n".join(table())
        + "\n"
    )
    (ROOT / "docs" / "detection.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
