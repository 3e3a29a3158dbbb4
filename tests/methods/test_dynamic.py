"""GPTQModel's table on its own."""

from __future__ import annotations

from degarble.formats.scheme import Scheme
from degarble.methods.dynamic import read_dynamic
from degarble.methods.fields import Fields


def test_signs() -> None:
    """No sign keeps, as `+:` does; the table itself is listed for the check of how engines read it."""
    table = {"-:a": {"bits": 3}, "+:a|b": {}, "c": {}}
    fields = Fields({"dynamic": table}, file="config.json", key="q")
    found = read_dynamic(fields, lambda values: Scheme(method="gptq", num_bits=4))
    assert [rule.scheme for rule in found.rules] == [None, Scheme(method="gptq", num_bits=4)]
    assert [skips.entries for skips in found.skips] == [tuple(table)]
    assert {rule.key for rule in found.rules} == {"q.dynamic"}


def test_no_table() -> None:
    """Absent, null and false are all the same."""
    tables: list[dict[str, object]] = [{}, {"dynamic": None}, {"dynamic": False}, {"dynamic": {}}]
    for raw in tables:
        found = read_dynamic(Fields(raw, file="f", key=""), lambda values: Scheme(method="gptq"))
        assert (found.rules, found.skips) == ((), ())
