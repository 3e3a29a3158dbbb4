"""Small healthy checkpoints of many families, as folders with tokenizer.json, with tokenizer.model, and as GGUF.

Sizes of vocabularies and embeddings are true, everything else is as small as the family's parameter list allows.
Written once per machine and content of the generating files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from degarble.architectures.load import load_architecture
from degarble.checkpoint.gguf_writer import encode_header
from tests import family_tokenizers, family_vocabularies
from tests.family_tokenizers import FAMILIES, FamilyTokenizer

NAMES = (
    "deepseek-v3",
    "qwen3",
    "llama-3",
    "gpt-oss",
    "gemma-3",
    "llama-2",
    "llama-2-sentencepiece",
    "gemma-2-sentencepiece",
    "deepseek-v3-gguf",
    "qwen3-gguf",
    "llama-3-gguf",
    "llama-2-gguf",
)
"""Folders below `family_patients()`."""
BYTE_LEVEL = ("deepseek-v3", "qwen3", "llama-3", "gpt-oss")


@cache
def family_patients() -> Path:
    """The folder that holds one folder per patient; safe under parallel test workers."""
    files = [Path(str(module.__file__)) for module in (family_tokenizers, family_vocabularies)]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*files, Path(__file__)))).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"degarble-families-{digest}"
    if not target.is_dir():
        partial = Path(tempfile.mkdtemp(prefix="degarble-families."))
        for name in NAMES:
            _write(partial / name)
        try:
            partial.rename(target)
        except OSError:  # another worker was first
            shutil.rmtree(partial)
    return target


@cache
def family_tokenizer(name: str) -> FamilyTokenizer:
    """The tokenizer of one family, whatever it is stored in."""
    return FAMILIES[name.removesuffix("-gguf").removesuffix("-sentencepiece")]()


def _write(folder: Path) -> None:
    folder.mkdir()
    tokenizer = family_tokenizer(folder.name)
    if folder.name.endswith("-gguf"):
        (folder / "model-BF16.gguf").write_bytes(gguf_file(tokenizer))
        return
    for name, value in json_files(tokenizer).items():
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1), "utf-8")
    (folder / "chat_template.jinja").write_text(tokenizer.template, "utf-8")
    (folder / "model.safetensors").write_bytes(safetensors_file(config_of(tokenizer)))
    if folder.name.endswith("-sentencepiece"):
        (folder / "tokenizer.model").write_bytes(sentencepiece_file(tokenizer))
    else:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer.document, ensure_ascii=False), "utf-8")


def config_of(tokenizer: FamilyTokenizer) -> dict[str, Any]:
    """config.json: one narrow layer under an embedding of true height."""
    return {
        "dtype": "bfloat16",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2 if tokenizer.config["model_type"] == "deepseek_v3" else 1,
        "head_dim": 8,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": tokenizer.rows,
        "bos_token_id": tokenizer.id_of(tokenizer.roles["bos_token"]),
        "eos_token_id": tokenizer.eos_id,
        "pad_token_id": tokenizer.id_of(tokenizer.roles["pad_token"]),
        **tokenizer.config,
    }


def json_files(tokenizer: FamilyTokenizer) -> Mapping[str, Any]:
    """The files around tokenizer.json, each as the family publishes it."""
    config = config_of(tokenizer)
    told = {role: text for role, text in tokenizer.roles.items() if text is not None}
    decoder = {
        str(entry["id"]): {key: value for key, value in entry.items() if key != "id"} for entry in tokenizer.added
    }
    files: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": {
            "bos_token_id": config["bos_token_id"],
            "eos_token_id": list(tokenizer.stop_ids) if len(tokenizer.stop_ids) > 1 else tokenizer.stop_ids[0],
            "pad_token_id": config["pad_token_id"],
        },
        "tokenizer_config.json": {
            "add_bos_token": tokenizer.add_bos,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 128,
            "tokenizer_class": "PreTrainedTokenizerFast",
            **({"added_tokens_decoder": decoder} if tokenizer.with_decoder else {}),
            **({"additional_special_tokens": list(tokenizer.additional)} if tokenizer.additional else {}),
            **tokenizer.roles,
        },
        "special_tokens_map.json": {
            **({"additional_special_tokens": list(tokenizer.additional)} if tokenizer.additional else {}),
            **{role: {"content": text, "lstrip": False, "rstrip": False} for role, text in told.items()},
        },
    }
    if tokenizer.with_added_file:
        inside = tokenizer.document["model"]["vocab"]
        outside = {entry["content"]: entry["id"] for entry in tokenizer.added if entry["content"] not in inside}
        files["added_tokens.json"] = outside
    return files


def tensors_of(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes that the family needs."""
    architecture = load_architecture(config)
    assert architecture is not None
    chosen: dict[str, str | None] = {}
    for template in architecture.templates:
        is_head = template.kind == "head"
        if (
            template.needed
            and not is_head
            and chosen.setdefault(template.group or "", template.variant)
            in (
                template.variant,
                None,
            )
        ):
            yield from ((name, template.shape) for name in template.names())


def bf16(shape: tuple[int, ...]) -> bytes:
    """Ordinary weights: normal, of standard deviation 0.05; norms are ones."""
    if len(shape) == 1:
        return b"\x80\x3f" * shape[0]
    values = np.random.default_rng(shape[0]).standard_normal(shape, np.float32) * np.float32(0.05)
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


def safetensors_file(config: Mapping[str, Any]) -> bytes:
    """All weights in bf16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    at = 0
    for name, shape in tensors_of(config):
        parts.append(bf16(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _block(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def sentencepiece_file(tokenizer: FamilyTokenizer) -> bytes:
    """A BPE model with byte fallback: type 2 unknown, 3 control, 4 user defined, 6 byte; scores fall with rank."""
    pieces = sorted(tokenizer.document["model"]["vocab"].items(), key=lambda item: item[1])
    roles = {text: role for role, text in tokenizer.roles.items() if text}
    special = {entry["content"] for entry in tokenizer.added}
    parts: list[bytes] = []
    for text, at in pieces:
        kind = 2 if roles.get(text) == "unk_token" else 3 if text in roles else 4 if text in special else 1
        kind = 6 if text in family_vocabularies.BYTES else kind
        score = -float(at) if kind == 1 else 0.0
        data = _block(1, text.encode()) + b"\x15" + struct.pack("<f", score)
        parts.append(_block(1, data + (b"\x18" + _varint(kind) if kind != 1 else b"")))
    ids = {role: dict(pieces).get(str(text)) for role, text in tokenizer.roles.items()}
    trainer = b"\x18\x02" + _varint(4 << 3) + _varint(len(pieces)) + _varint(35 << 3) + b"\x01"
    for number, role in ((40, "unk_token"), (41, "bos_token"), (42, "eos_token"), (43, "pad_token")):
        at = ids.get(role)
        trainer += _varint(number << 3) + _varint((1 << 64) - 1 if at is None else at)
        trainer += _block(number + 5, (tokenizer.roles.get(role) or f"<no {role}>").encode())
    prefix = tokenizer.document["normalizer"]["type"] == "Sequence"
    normalizer = _block(1, b"identity") + b"\x18" + _varint(int(prefix)) + b"\x20\x00\x28\x01"
    return b"".join(parts) + _block(2, trainer) + _block(3, normalizer)


GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


def gguf_file(tokenizer: FamilyTokenizer) -> bytes:
    """A Llama layer under the family's vocabulary: ids past the vocabulary are written as unused `[PAD…]` tokens."""
    config = {**config_of(tokenizer), "model_type": "llama", "head_dim": 8, "num_key_value_heads": 1}
    entries: list[tuple[str, tuple[int, ...], int, int]] = []
    data: list[bytes] = []
    at = 0
    for name, shape in tensors_of(config):
        inner = name.removeprefix("model.layers.0.")
        full = GGUF_NAMES[inner] if name == inner else f"blk.0.{GGUF_NAMES[inner]}"
        plain = np.ones(shape, "<f4").tobytes() if len(shape) == 1 else bf16(shape)
        plain += b"\0" * (-len(plain) % 32)
        entries.append((full, shape, 0 if len(shape) == 1 else 30, at))
        data.append(plain)
        at += len(plain)
    pairs = dict(_gguf_pairs(tokenizer, config))
    metadata = {key: value for key, (value, _) in pairs.items()}
    types = {key: kind for key, (_, kind) in pairs.items()}
    return b"".join([encode_header(metadata, types, entries, 32), *data])


def _gguf_pairs(
    tokenizer: FamilyTokenizer, config: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[Any, tuple[int, int | None]]]]:
    text, number, real, flag = (8, None), (4, None), (6, None), (7, None)
    yield "general.architecture", ("llama", text)
    yield "general.name", ("family patient", text)
    yield "general.file_type", (32, number)
    for key, name in (
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("rope.dimension_count", "head_dim"),
        ("vocab_size", "vocab_size"),
    ):
        yield f"llama.{key}", (config[name], number)
    yield "llama.rope.freq_base", (10000.0, real)
    yield "llama.attention.layer_norm_rms_epsilon", (1e-6, real)
    model = tokenizer.document["model"]
    tokens, types = gguf_tokens(tokenizer)
    yield "tokenizer.ggml.model", ("llama" if model["byte_fallback"] else "gpt2", text)
    yield "tokenizer.ggml.pre", (tokenizer.gguf_pre, text)
    yield "tokenizer.ggml.tokens", (tokens, (9, 8))
    yield "tokenizer.ggml.token_type", (np.array(types, np.int32), (9, 5))
    if model["byte_fallback"]:
        yield "tokenizer.ggml.scores", (-np.arange(len(tokens), dtype=np.float32), (9, 6))
    else:
        yield "tokenizer.ggml.merges", (model["merges"], (9, 8))
    for key, role in (("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token"), ("unknown", "unk_token")):
        at = tokenizer.id_of(tokenizer.roles.get(role))
        if at is not None:
            yield f"tokenizer.ggml.{key}_token_id", (at, number)
    yield "tokenizer.ggml.add_bos_token", (tokenizer.add_bos, flag)
    yield "tokenizer.chat_template", (tokenizer.template, text)


def gguf_tokens(tokenizer: FamilyTokenizer) -> tuple[list[str], list[int]]:
    """Strings and types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte."""
    tokens = [f"[PAD{at}]" for at in range(tokenizer.rows)]
    types = [5] * tokenizer.rows
    for text, at in tokenizer.document["model"]["vocab"].items():
        tokens[at], types[at] = text, 6 if text in family_vocabularies.BYTES else 1
    for entry in tokenizer.added:
        text, at = entry["content"], entry["id"]
        looks_special = entry["special"] or text.startswith(("<|", "<｜"))
        tokens[at], types[at] = text, 3 if looks_special else 4
        if text == tokenizer.roles.get("unk_token"):
            types[at] = 2
    return tokens, types
