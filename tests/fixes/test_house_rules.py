"""Every repair says what it does, and every name of a repair in a check leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import degarble.checks
from degarble.fixes.interface import SECTIONS, repair, repairs

ADVICE = {
    "convert-to-safetensors": "would run code of the file",
    "keep-kv-cache-unquantized": "an option of the engine",
    "keep-scales-in-bfloat16": "an option of the engine",
    "mask-padded-ids": "an option of the sampler",
    "pad-before-quantizing": "the model has to be quantised again",
    "quantize-without-act-order": "the model has to be quantised again",
    "serve-in-bfloat16": "an option of the engine",
    "split-fused-tensor": "a newer engine reads it as it is, and older ones want other names",
    "use-another-engine-version": "nothing is wrong with the file",
}
"""Names that stand for something to do elsewhere: `fix` shows the rule's own advice for them."""


def named_in_checks() -> set[str]:
    """Ids as they stand in the sources of the checks."""
    folder = Path(degarble.checks.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    found = set(re.findall(r'Fix\(id="([^"]+)"', text))
    for one, other in re.findall(r'Fix\(id="([^"]+)" if .+? else "([^"]+)"', text):
        found |= {one, other}
    return found | {"calibrate-experts", "one-form-for-all-experts"}  # QNT111 chooses by variable


def test_every_name_is_a_repair_or_advice() -> None:
    assert named_in_checks() - set(repairs()) == set(ADVICE)


def test_every_repair_is_named() -> None:
    """But for the copy itself, which is tried for any finding."""
    assert set(repairs()) - named_in_checks() == {"restore-from-reference"}


@pytest.mark.parametrize("one", repairs().values(), ids=lambda one: one.id)
def test_pages(one) -> None:  # type: ignore[no-untyped-def]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", one.id)
    assert tuple(re.findall(r"^## (.+)$", one.page, flags=re.MULTILINE)) == SECTIONS
    assert one.summary.endswith(".") and "repair" not in one.summary.lower().split()[:1]


def test_one_id_one_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    from degarble.fixes import remove_actorder

    @repair("set-desc-act")
    def second(job: object) -> None:
        """Claims another's id."""

    second.__module__ = remove_actorder.__name__
    monkeypatch.setattr(remove_actorder, "second", second, raising=False)
    repairs.cache_clear()
    with pytest.raises(ValueError, match="elsewhere"):
        repairs()
    monkeypatch.undo()
    repairs.cache_clear()
