"""The page of profiles says what the data files say, and the explanation names every switch there is."""

from __future__ import annotations

from pathlib import Path

from degarble.engines.arithmetic import engine_arithmetics, page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_every_switch_of_every_engine_with_its_source() -> None:
    text = page()
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    assert set(sections) == set(engine_arithmetics())
    for name, profile in engine_arithmetics().items():
        rows = {line.split(" | ")[0].removeprefix("| "): line for line in sections[name].splitlines()}
        for key, cell in profile.cells():
            assert ("unverified: " in rows[key]) == bool(cell.unverified), (name, key)
            assert (cell.source or cell.unverified)[:12].split("_")[0] in rows[key]
    assert text in (DOCS / "engine-arithmetic.md").read_text(encoding="utf-8"), "run `make docs`"


def test_the_explanation_names_every_switch() -> None:
    text = (DOCS / "explanation" / "overflow.md").read_text(encoding="utf-8")
    missing = {
        name for profile in engine_arithmetics().values() for name, _ in profile.cells() if f"`{name}`" not in text
    }
    assert not missing
