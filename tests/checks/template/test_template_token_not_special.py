"""TPL503: markers and the text beside them."""

from __future__ import annotations

import pytest

from degarble.finding import Severity
from tests.checks.template.template_folders import CHATML, TOKENS, findings, folder, gguf, severities

DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")
TURNS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}<｜Assistant｜>"
    "{{ m.content }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}"
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (CHATML, TOKENS),
        (TURNS, DEEPSEEK),
        (CHATML + "{% if tools %}<tools>{{ tools }}</tools>{% endif %}", TOKENS),
        (CHATML + "{% if '<|x|>' in messages[0].content %}a{% endif %}", TOKENS),
        ("{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}", ("<s>", "</s>")),
        ("{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}", ("<s>", "</s>")),
    ],
)
def test_silent(text: str, tokens: tuple[str, ...]) -> None:
    assert findings("TPL503", folder(text, tokens=tokens)) == []
    assert findings("TPL503", gguf(text, tokens=tokens)) == []


@pytest.mark.parametrize(
    ("text", "tokens", "words"),
    [
        (TURNS.replace("<｜User｜>", "<|User|>"), DEEPSEEK, "U+FF5C"),
        (CHATML.replace("|im_end|", "|im\u200b_end|"), TOKENS, "U+200B"),
        (CHATML, ("<|im_start|>", "</s>"), "<|im_end|>"),
        (CHATML.replace("|im_end|", "|im_endd|"), TOKENS, "'<|im_end|>' (id "),
        (CHATML.replace("{{ m.role }}\n", "{{ m.role }}\\n"), TOKENS, "a backslash"),
        (CHATML.replace("{{ m.role }}\n", "{{ m.role ~ '\\r\\n' }}"), TOKENS, "CARRIAGE RETURN"),
        (CHATML.replace("{{ m.role }}\n", "{{ m.role }}\u00a0\n"), TOKENS, "NO-BREAK SPACE"),
        ("\ufeff" + CHATML, TOKENS, "U+FEFF"),
    ],
)
def test_found(text: str, tokens: tuple[str, ...], words: str) -> None:
    for source in (folder(text, tokens=tokens), folder(None, tokens=tokens, jinja=text), gguf(text, tokens=tokens)):
        (found,) = findings("TPL503", source)
        assert found.severity is Severity.ERROR and words in found.message


def test_branch_that_is_not_reached_is_a_warning() -> None:
    text = CHATML + "{% if messages[0].image %}<|image_pad|>{% endif %}"
    assert severities("TPL503", folder(text)) == ["warning"]


def test_markers_of_one_template_are_one_finding() -> None:
    (found,) = findings("TPL503", folder("{% for m in messages %}<|a_b|><|c_d|>{{ m.content }}<|e_f|>{% endfor %}"))
    assert {place.token for place in found.all_places} == {"<|a_b|>", "<|c_d|>", "<|e_f|>", None}


def test_role_token_of_another_family_written_through_a_variable() -> None:
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>", "chat_template": "{{ bos_token }}" + CHATML}
    (found,) = findings("TPL503", folder(None, tokenizer_config=config))
    assert "<|begin_of_text|>" in found.message


@pytest.mark.parametrize("tokens", [(), ("",), ("\ud800",), ("<|" + "x" * 5000 + "|>",)])
def test_odd_tokens(tokens: tuple[str, ...]) -> None:
    findings("TPL503", folder(CHATML, tokens=tokens))


def test_many_tokens_and_markers() -> None:
    tokens = tuple(f"<|token_{at}|>" for at in range(20_000))
    text = "{% for m in messages %}{{ m.content }}" + "".join(f"<|tokem_{at}|>" for at in range(500)) + "{% endfor %}"
    (found,) = findings("TPL503", folder(text, tokens=tokens))
    assert len(found.all_places) > 500
