"""Causes over symptoms, and the order of causes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.diagnosis import diagnose
from degarble.finding import Confidence, Finding, Location, Role, Severity

EDGES = {"QNT101": frozenset({"CKP103"}), "CFG104": frozenset({"QNT101", "CKP102"}), "CKP103": frozenset({"CKP102"})}


def finding(rule: str, severity: Severity = Severity.ERROR, **place: object) -> Finding:
    """A finding as the runner hands it on."""
    return Finding(
        location=Location(**place),  # type: ignore[arg-type]
        message=rule,
        rule=rule,
        name=rule.lower(),
        severity=severity,
        confidence=Confidence.PROVEN,
    )


def test_symptom_goes_under_its_cause_through_a_chain() -> None:
    found = diagnose(
        [
            finding("CFG104", module="a.b", layer=1),
            finding("QNT101", module="a.b", layer=1, file="s1"),
            finding("CKP103", tensor="a.b.scale", module="a.b", file="s1"),
        ],
        EDGES,
    )
    assert [cause.finding.rule for cause in found.causes] == ["CKP103"]
    assert {symptom.rule for symptom in found.causes[0].symptoms} == {"QNT101", "CFG104"}
    assert [f.id for f in found.findings] == ["f1", "f2", "f3"]


def test_independent_places_do_not_swallow_each_other() -> None:
    found = diagnose([finding("QNT101", module="a", file="s"), finding("CKP103", module="b", file="s")], EDGES)
    assert {cause.finding.rule for cause in found.causes} == {"QNT101", "CKP103"}


def test_a_finding_about_the_whole_target_overlaps_all() -> None:
    found = diagnose([finding("CFG104", module="a", layer=3), finding("CKP102", file="config.json")], EDGES)
    assert [cause.finding.rule for cause in found.causes] == ["CKP102"]


TOKEN_EDGES = {"TPL507": frozenset({"TOK406", "TOK407", "CFG101"})}
INVALID_EOS: dict[str, Any] = {"file": "generation_config.json", "key": "eos_token_id", "token_id": 7}


@pytest.mark.parametrize(
    ("cause", "is_explained"),
    [
        (finding("TOK406", file="tokenizer.json", token="â", token_id=9), False),
        (finding("TOK406", file="tokenizer.json", key="added_tokens", token="â", token_id=7), True),
        (finding("TOK406", file="tokenizer.json", token="â"), True),  # it may be that id's
        (finding("TOK407", file="tokenizer.json", key="decoder"), True),
        (finding("CFG101", file="config.json", key="eos_token_id"), True),
        (finding("CFG101", file="config.json", key="pad_token_id"), False),
        (finding("CFG101", file="generation_config.json", key="temperature"), False),
        (finding("CFG101", file="generation_config.json"), True),
    ],
)
def test_tokens_and_claims_decide_in_text_files(cause: Finding, is_explained: bool) -> None:
    """Else any finding in any JSON file would explain any other."""
    found = diagnose([finding("TPL507", **INVALID_EOS), cause], TOKEN_EDGES)
    assert len(found.causes) == (1 if is_explained else 2)
    assert cause.rule in {one.finding.rule for one in found.causes}


def test_tokens_of_a_trace_are_told_by_request_and_block() -> None:
    edges = {"KVC602": frozenset({"KVC601"})}
    pair = [finding("KVC602", request="r", token_id=5), finding("KVC601", request="r", block=3, token_id=9)]
    assert len(diagnose(pair, edges).causes) == 1


def test_files_decide_where_nothing_finer_is_shared() -> None:
    apart = diagnose([finding("CKP103", file="one.safetensors"), finding("CKP102", file="two.safetensors")], EDGES)
    assert len(apart.causes) == 2


def test_infos_are_notes_and_explain_nothing() -> None:
    found = diagnose([finding("CFG104"), finding("QNT101", Severity.INFO)], EDGES)
    assert [cause.finding.rule for cause in found.causes] == ["CFG104"]
    assert found.findings[1].role is Role.NOTE


def test_order_of_causes() -> None:
    unsure = replace(finding("QNT999", module="m"), confidence=Confidence.LIKELY)
    causes = diagnose(
        [
            finding("QNT300", Severity.WARNING),
            unsure,
            finding("QNT200", module="x", row=1),
            finding("QNT201", module="y"),
            finding("QNT202", layer=1),
            finding("QNT203"),
        ],
        {},
    ).causes
    assert [c.finding.rule for c in causes] == ["QNT203", "QNT202", "QNT201", "QNT200", "QNT999", "QNT300"]


def test_the_one_that_explains_more_comes_first() -> None:
    found = diagnose(
        [
            finding("CKP103", module="z"),
            finding("CKP102", module="a"),
            finding("CFG104", module="a"),
        ],
        {"CFG104": frozenset({"CKP102"})},
    )
    assert [c.finding.rule for c in found.causes] == ["CKP102", "CKP103"]


def test_a_cycle_of_edges_still_leaves_a_cause() -> None:
    edges = {"QNT101": frozenset({"QNT102"}), "QNT102": frozenset({"QNT101"})}
    found = diagnose([finding("QNT101", module="a"), finding("QNT102", module="a")], edges)
    assert len(found.findings) == 2


rule_names = st.sampled_from(["QNT101", "CKP103", "CFG104", "CKP102"])
places = st.fixed_dictionaries(
    {}, optional={"module": st.sampled_from("abc"), "layer": st.integers(0, 2), "file": st.sampled_from("xy")}
)


@given(st.lists(st.tuples(rule_names, places, st.sampled_from(Severity)), max_size=12))
def test_every_finding_keeps_exactly_one_role(rows: list[tuple[str, dict[str, object], Severity]]) -> None:
    """No finding is lost, none is cause and symptom, ids are unique, every symptom hangs under one cause."""
    found = diagnose([finding(rule, severity, **place) for rule, place, severity in rows], EDGES)
    assert len(found.findings) == len(rows)
    assert len({f.id for f in found.findings}) == len(rows)
    causes = [c.finding.id for c in found.causes]
    symptoms = [s.id for c in found.causes for s in c.symptoms if s.role is Role.SYMPTOM]
    assert sorted(causes) == sorted(f.id for f in found.findings if f.role is Role.CAUSE)
    assert sorted(symptoms) == sorted(f.id for f in found.findings if f.role is Role.SYMPTOM)
