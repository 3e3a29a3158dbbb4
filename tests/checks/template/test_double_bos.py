"""TPL504: published habits are infos; where no path gives one BOS is a warning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checks.template.template_folders import CHATML, TOKENS, findings, folder, gguf, severities
from tests.tokenizer.small_tokenizers import added, byte_level

LLAMA = ("<|begin_of_text|>", "<|eot_id|>")
TURNS = "{% for m in messages %}<|eot_id|>{{ m.content }}{% endfor %}"
INST = "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"


def llama(template: str, bos: str | None = LLAMA[0], **config: Any):  # type: ignore[no-untyped-def]
    """A folder whose BOS is used for nothing else."""
    stored = {"bos_token": bos, "eos_token": LLAMA[1], "chat_template": template, **config}
    return folder(None, tokens=LLAMA, tokenizer_config=stored)


def with_processor(template: str, count: int):  # type: ignore[no-untyped-def]
    """A tokenizer.json whose post-processor writes so many."""
    document = byte_level()
    document["added_tokens"] = [added(300 + at, text, special=True) for at, text in enumerate(LLAMA)]
    first = {"SpecialToken": {"id": LLAMA[0], "type_id": 0}}
    document["post_processor"] = {"type": "TemplateProcessing", "single": [first] * count + [{"Sequence": {"id": "A"}}]}
    config = {"bos_token": LLAMA[0], "eos_token": LLAMA[1], "chat_template": template}
    return folder(None, tokenizer=document, tokenizer_config=config)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (llama("{{ bos_token }}" + TURNS), []),
        (llama("{{ bos_token }}" + TURNS, add_bos_token=False), []),
        (llama("{{ bos_token }}" + TURNS, add_bos_token=True), ["info"]),
        (llama("{{ bos_token }}" + TURNS, tokenizer_class="LlamaTokenizerFast"), ["info"]),
        (with_processor("{{ bos_token }}" + TURNS, 1), ["info"]),
        (with_processor("{{ bos_token }}" + TURNS, 2), ["warning"]),
        (llama("{{ bos_token }}{{ bos_token }}" + TURNS), ["warning"]),
        (llama("{{ bos_token }} <|begin_of_text|>\n" + TURNS), ["warning"]),
        (llama(TURNS), ["warning"]),
        (llama(TURNS, add_bos_token=True), ["warning"]),
        (llama("{{ bos_token }}" + TURNS, bos=None), []),
        (folder(CHATML), []),
        (folder(INST, tokens=("<s>", "</s>")), []),
    ],
)
def test_folders(source, expected: list[str]) -> None:  # type: ignore[no-untyped-def]
    assert severities("TPL504", source) == expected


def test_plain_s_is_needed_with_inst_only() -> None:
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    inst = folder(None, tokens=("<s>", "</s>"), tokenizer_config={**config, "chat_template": INST})
    zephyr = folder(
        None, tokens=("<s>", "</s>"), tokenizer_config={**config, "chat_template": CHATML.replace("im_", "")}
    )
    assert severities("TPL504", inst) == ["warning"] and severities("TPL504", zephyr) == ["info"]


def test_marker_of_turns() -> None:
    config = {"bos_token": TOKENS[0], "eos_token": TOKENS[1], "chat_template": CHATML}
    assert severities("TPL504", folder(None, tokenizer_config=config)) == []
    (found,) = findings("TPL504", folder(None, tokenizer_config={**config, "add_bos_token": True}))
    assert str(found.severity) == "warning" and found.location.key == "add_bos_token"


@pytest.mark.parametrize(
    ("template", "metadata", "expected"),
    [
        ("{{ bos_token }}" + TURNS, {"add_bos_token": True}, ["info"]),
        ("{{ bos_token }}" + TURNS, {"add_bos_token": False}, []),
        ("{{ bos_token }}" + TURNS, {"pre": "llama-bpe"}, ["info"]),
        ("{{ bos_token }}{{ bos_token }}" + TURNS, {"add_bos_token": False}, ["warning"]),
        (TURNS, {"add_bos_token": True}, []),
        (TURNS, {"add_bos_token": False}, ["warning"]),
    ],
)
def test_gguf(template: str, metadata: dict[str, Any], expected: list[str]) -> None:
    source = gguf(template, tokens=LLAMA, bos_token_id=2, eos_token_id=3, **metadata)
    assert severities("TPL504", source) == expected


@pytest.mark.parametrize("value", [3, [], None, "x", {"content": 5}, {"content": "<|none|>"}])
def test_odd_configs(value: Any) -> None:
    findings("TPL504", llama(TURNS, bos=value, add_bos_token=value, tokenizer_class=value))
