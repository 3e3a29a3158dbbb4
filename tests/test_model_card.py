"""Tags of a model card: a YAML reader sees the tags change and nothing else, and every other line stays as it was."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from degarble.errors import MalformedFile
from degarble.model_card import with_tags

OWN = re.compile(r"degarble(-[a-z]+)?")
NEW = ("degarble", "degarble-ok")

CARDS = {
    "no card": "",
    "no front matter": "# Title\n\nText\n",
    "front matter without tags": "---\nlicense: mit\n---\n# Title\n",
    "empty front matter": "---\n---\n# Title\n",
    "block": "---\ntags:\n- gptq\n- 4-bit\nlicense: mit\n---\ntext\n",
    "indented block": "---\nlicense: mit\ntags:\n  - gptq\n  - 'awq model'\n---\ntext\n",
    "flow": "---\ntags: [gptq, \"a, b\", 'c']  # all of them\nlicense: mit\n---\n",
    "empty flow": "---\ntags: []\n---\n",
    "empty key": "---\ntags:\nlicense: mit\n---\n",
    "null": "---\ntags: null\nlicense: mit\n---\n",
    "comments": "---\n# card\ntags:  # kinds\n# first\n- gptq # why\n\n- awq\nbase_model: x/y\n---\ntext\n",
    "stamped before": "---\ntags:\n- degarble\n- gptq\n- degarble-findings\n---\ntext\n",
    "stamped before, flow": "---\ntags: [degarble-partial, gptq]\n---\ntext\n",
    "already so": "---\ntags:\n- gptq\n- degarble\n- degarble-ok\n---\ntext\n",
    "windows": "---\r\ntags:\r\n- gptq\r\nlicense: mit\r\n---\r\ntext\r\n",
    "byte order mark": "\ufeff---\ntags:\n- gptq\n---\ntext\n",
    "nested tags elsewhere": "---\nmodel-index:\n- name: x\n  tags:\n  - inner\nlicense: mit\n---\ntext\n",
    "not a string": "---\ntags:\n- 4\n- true\n---\n",
    "rule in the text": "# Title\n\n---\n\ntext\n",
}


def parts(card: str) -> tuple[dict[str, Any], str]:
    """Front matter and the rest, as a YAML reader has them."""
    text = card.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}, text
    head, _, body = text.removeprefix("---\n").partition("---\n")
    return yaml.safe_load(head) or {}, body


@pytest.mark.parametrize("case", CARDS)
def test_only_the_tags_change(case: str) -> None:
    before, body = parts(CARDS[case])
    stamped = with_tags(CARDS[case], NEW, OWN)
    after, rest = parts(stamped)
    assert rest == body
    assert {key: value for key, value in after.items() if key != "tags"} == {
        key: value for key, value in before.items() if key != "tags"
    }
    foreign = [tag for tag in before.get("tags") or [] if not OWN.fullmatch(str(tag))]
    assert [tag for tag in after["tags"] if not OWN.fullmatch(str(tag))] == foreign
    assert sorted(tag for tag in after["tags"] if OWN.fullmatch(str(tag))) == sorted(NEW)


@pytest.mark.parametrize("case", CARDS)
def test_twice_is_once(case: str) -> None:
    once = with_tags(CARDS[case], NEW, OWN)
    assert with_tags(once, NEW, OWN) == once


@pytest.mark.parametrize("case", CARDS)
def test_every_other_line_stays(case: str) -> None:
    stamped = with_tags(CARDS[case], NEW, OWN)
    kept = [line for line in CARDS[case].splitlines() if "tags" not in line and "degarble" not in line]
    remaining = iter(stamped.splitlines())
    assert all(line in remaining for line in kept)
    assert ("\r\n" in stamped) == ("\r\n" in CARDS[case])


def test_a_card_that_is_so_already_is_the_same() -> None:
    assert with_tags(CARDS["already so"], NEW, OWN) == CARDS["already so"]


@pytest.mark.parametrize(
    "card",
    [
        "---\ntags: [a\n",
        "---\ntags: [a,\n  b]\n---\n",
        "---\ntags: &x [a]\n---\n",
        "---\ntags: *x\n---\n",
        "---\ntags: gptq\n---\n",
        "---\ntags: {a: b}\n---\n",
        "---\ntags: [[a], b]\n---\n",
        "---\ntags:\n  a: b\n---\n",
        "---\ntags: [a]\ntags: [b]\n---\n",
        "---\ntags:\n- >-\n  folded\n---\n",
    ],
)
def test_what_is_not_understood_is_refused(card: str) -> None:
    with pytest.raises(MalformedFile, match=r"README\.md"):
        with_tags(card, NEW, OWN)
