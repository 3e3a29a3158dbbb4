"""Tokenizers shaped like the published families: their specials at their ids, their cuts, and filler for the rest.

Ids, flags and pre-tokenizers were read from the published tokenizer.json files; pieces, merges and chat templates are
made up here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests import family_vocabularies as v


@dataclass(frozen=True, kw_only=True)
class FamilyTokenizer:
    """What a checkpoint of the family ships about text."""

    document: dict[str, Any]
    """tokenizer.json."""
    rows: int
    """Rows of its embedding: padding included."""
    roles: Mapping[str, str | None]
    """bos_token, eos_token, pad_token, unk_token as tokenizer_config.json has them."""
    stop_ids: Sequence[int]
    """eos_token_id of generation_config.json."""
    eos_id: int
    """eos_token_id of config.json."""
    template: str
    add_bos: bool = False
    with_decoder: bool = True
    """Whether tokenizer_config.json lists added_tokens_decoder."""
    with_added_file: bool = False
    additional: Sequence[str] = ()
    gguf_pre: str = "default"
    config: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the family's own config.json."""

    @property
    def added(self) -> list[dict[str, Any]]:
        """Entries of added_tokens."""
        listed: list[dict[str, Any]] = self.document["added_tokens"]
        return listed

    def id_of(self, text: str | None) -> int | None:
        """Id of an added token."""
        return next((entry["id"] for entry in self.added if entry["content"] == text), None)


DEEPSEEK_CUTS = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
    "\r\n"
    r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
    "\r\n"
    r"""]*|\s*["""
    "\r\n"
    r"""]+|\s+(?!\S)|\s+""",
)
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_CUTS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + SPACES
LLAMA_3_CUTS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + SPACES
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
GPT_OSS_CUTS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{CONTRACTIONS}?|"
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{CONTRACTIONS}?|\p{{N}}{{1,3}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def deepseek_v3() -> FamilyTokenizer:
    """BOS at 0, so that an id 0 from broken logits is invisible; roles and tools not flagged special."""
    named = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    pieces, merges = v.byte_level(128000, named)
    plain = ["fim▁hole", "fim▁begin", "fim▁end", "User", "Assistant"]
    tools = [f"tool▁{what}▁{end}" for what in ("calls", "call", "outputs", "output") for end in ("begin", "end")]
    specials: list[v.Special] = [(at, text, True) for at, text in enumerate(named)]
    specials += [(128000 + at, f"<｜place▁holder▁no▁{at}｜>", True) for at in range(800)]
    specials += [(128800 + at, f"<｜{text}｜>", False) for at, text in enumerate(plain)]
    specials += [(128805, "<|EOT|>", True)]
    specials += [(128806 + at, f"<｜{text}｜>", False) for at, text in enumerate([*tools, "tool▁sep"])]
    return FamilyTokenizer(
        document=v.document(
            pieces, merges, v.added(specials, normalized_if_plain=True), **v.byte_level_parts(*DEEPSEEK_CUTS)
        ),
        rows=129280,
        roles={"bos_token": named[0], "eos_token": named[1], "pad_token": named[1], "unk_token": None},
        stop_ids=(1,),
        eos_id=1,
        add_bos=True,
        with_decoder=False,
        gguf_pre="deepseek-v3",
        template="{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
        "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
        config={
            "model_type": "deepseek_v3",
            "architectures": ["DeepseekV3ForCausalLM"],
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 2,
            "n_shared_experts": 1,
            "moe_intermediate_size": 16,
            "num_experts_per_tok": 1,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 0,
        },
    )


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def qwen3() -> FamilyTokenizer:
    """No BOS at all; fim, think and tool tokens not flagged special; two stop ids."""
    pieces, merges = v.byte_level(151643)
    special = ["endoftext", "im_start", "im_end", "object_ref_start", "object_ref_end", "box_start", "box_end"]
    special += ["quad_start", "quad_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"]
    plain = ["<tool_call>", "</tool_call>"]
    plain += [f"<|{text}|>" for text in ("fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "repo_name", "file_sep")]
    plain += ["<tool_response>", "</tool_response>", "<think>", "</think>"]
    specials: list[v.Special] = [(151643 + at, f"<|{text}|>", True) for at, text in enumerate(special)]
    specials += [(151657 + at, text, False) for at, text in enumerate(plain)]
    return FamilyTokenizer(
        document=v.document(
            pieces, merges, v.added(specials), **v.byte_level_parts(QWEN_CUTS, normalizer={"type": "NFC"})
        ),
        rows=151936,
        roles={"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None},
        stop_ids=(151645, 151643),
        eos_id=151645,
        with_added_file=True,
        additional=[f"<|{text}|>" for text in special[1:]],
        gguf_pre="qwen2",
        template=CHATML,
        config={"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    )


def llama_3() -> FamilyTokenizer:
    """BOS from the template and from the post-processor; names of reserved tokens do not follow their ids."""
    pieces, merges = v.byte_level(128000)
    named = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
    numbers = iter(range(251))
    texts = [named.get(at) or f"reserved_special_token_{next(numbers)}" for at in range(256)]
    bos = "<|begin_of_text|>"
    parts = v.byte_level_parts(LLAMA_3_CUTS, ignore_merges=True, post_processor=v.bos_template(bos, 128000))
    specials: list[v.Special] = [(128000 + at, f"<|{text}|>", True) for at, text in enumerate(texts)]
    return FamilyTokenizer(
        document=v.document(pieces, merges, v.added(specials), **parts),
        rows=128256,
        roles={"bos_token": bos, "eos_token": "<|eot_id|>", "pad_token": None, "unk_token": None},
        stop_ids=(128001, 128009),
        eos_id=128009,
        add_bos=True,
        gguf_pre="llama-bpe",
        template="{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        config={"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    )


def gpt_oss() -> FamilyTokenizer:
    """o200k_harmony: an assistant's final message ends with <|return|>, a call with <|call|>."""
    pieces, merges = v.byte_level(199998)
    named = {-2: "startoftext", -1: "endoftext", 2: "return", 3: "constrain", 5: "channel", 6: "start", 7: "end"}
    named |= {8: "message", 12: "call", 18: "endofprompt"}
    specials: list[v.Special] = [
        (200000 + at, f"<|{named.get(at) or f'reserved_{200000 + at}'}|>", True) for at in range(-2, 19)
    ]
    return FamilyTokenizer(
        document=v.document(pieces, merges, v.added(specials), **v.byte_level_parts(GPT_OSS_CUTS, ignore_merges=True)),
        rows=201088,
        roles={"bos_token": "<|startoftext|>", "eos_token": "<|return|>", "pad_token": "<|endoftext|>"},
        stop_ids=(200002, 199999, 200012),
        eos_id=200002,
        gguf_pre="gpt-4o",
        template="{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
        "<|message|>{{ m.content }}{% if m.role == 'assistant' and loop.last %}<|return|>{% else %}<|end|>{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        config={"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_local_experts": 2},
    )


GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def gemma_3() -> FamilyTokenizer:
    """White space and HTML tags are added tokens without a flag, `</s>` among them; one token past the vocabulary."""
    named = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[multimodal]"]
    first = [*named, *(f"<unused{at}>" for at in range(99)), "<start_of_turn>", "<end_of_turn>"]
    first += ["\n" * count for count in range(1, 32)] + ["▁" * count for count in range(2, 32)]
    first += [f"<{tag}>" for tag in ["table", "thead", "tbody", "tr", "td", "s", "sub"]]
    first += [f"</{tag}>" for tag in ["table", "thead", "tbody", "tr", "td", "s", "sub"]]
    while len(first) < 238:
        first.append(f"<tag{len(first)}>")
    pieces, merges = v.byte_fallback([*first, *v.BYTES], 255968)
    last = [*("\t" * count for count in range(1, 32)), "<start_of_image>", "<end_of_image>"]
    last += [f"<unused{at}>" for at in range(99, 6242)]
    special = {0, 1, 2, 3, 105, 106, 255999, 256000, 262144}
    listed = [*enumerate(first), *enumerate([*last, "<image_soft_token>"], start=255968)]
    parts = v.byte_fallback_parts(
        strip=False,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        post_processor=v.bos_template("<bos>", 2),
    )
    return FamilyTokenizer(
        document=v.document(
            [*pieces, *last], merges, v.added([(at, text, at in special) for at, text in listed]), **parts
        ),
        rows=262208,
        roles={"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
        stop_ids=(1, 106),
        eos_id=1,
        add_bos=True,
        with_added_file=True,
        template=GEMMA_TEMPLATE,
        config={"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]},
    )


def gemma_2() -> FamilyTokenizer:
    """As published in tokenizer.model: turn markers at 106 and 107, bytes from 217."""
    named = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<2mass>", "[@BOS@]"]
    first = [*named, *(f"<unused{at}>" for at in range(99)), "<start_of_turn>", "<end_of_turn>"]
    first += ["\n" * count for count in range(1, 32)] + ["▁" * count for count in range(2, 32)]
    while len(first) < 217:
        first.append(f"<tag{len(first)}>")
    pieces, merges = v.byte_fallback([*first, *v.BYTES], 256000)
    special = {0, 1, 2, 3, 106, 107}
    return FamilyTokenizer(
        document=v.document(
            pieces,
            merges,
            v.added([(at, text, at in special) for at, text in enumerate(first[:108]) if at in special]),
            **v.byte_fallback_parts(strip=False, post_processor=v.bos_template("<bos>", 2)),
        ),
        rows=256000,
        roles={"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
        stop_ids=(1, 107),
        eos_id=1,
        add_bos=True,
        template=GEMMA_TEMPLATE,
        config={"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]},
    )


def llama_2() -> FamilyTokenizer:
    """Three specials inside the vocabulary; turns are plain text between BOS and EOS."""
    pieces, merges = v.byte_fallback(["<unk>", "<s>", "</s>", *v.BYTES], 32000)
    pieces.remove(v.SPACE)
    pieces.insert(29871, v.SPACE)
    specials: list[v.Special] = [(0, "<unk>", True), (1, "<s>", True), (2, "</s>", True)]
    return FamilyTokenizer(
        document=v.document(
            pieces,
            merges,
            v.added(specials),
            **v.byte_fallback_parts(strip=True, post_processor=v.bos_template("<s>", 1)),
        ),
        rows=32000,
        roles={"bos_token": "<s>", "eos_token": "</s>", "pad_token": None, "unk_token": "<unk>"},
        stop_ids=(2,),
        eos_id=2,
        add_bos=True,
        template="{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
        "{% elif m.role == 'assistant' %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %} {% endif %}",
        config={"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    )


FAMILIES: Mapping[str, Callable[[], FamilyTokenizer]] = {
    "deepseek-v3": deepseek_v3,
    "qwen3": qwen3,
    "llama-3": llama_3,
    "gpt-oss": gpt_oss,
    "gemma-3": gemma_3,
    "gemma-2": gemma_2,
    "llama-2": llama_2,
}
