"""Findings stand in the order in which an operator needs them, and none of a kind is pushed out by others."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.audit.histories import PIPELINE, SINK, intent, true_facts, with_ledger, with_rows, with_sink
from tests.audit.pages import damaged

from onceonly.audit import judge
from onceonly.audit.catalogue import RULES, Severity
from onceonly.audit.finding import Finding
from onceonly.audit.page.figures import FINDINGS, document_of
from onceonly.audit.page.outcomes import grid_of
from onceonly.audit.result import foremost, urgency
from onceonly.protocol.values import ExternalChange


def at(code: str, epoch: int | None = None, sink: str | None = SINK) -> Finding:
    return Finding(code, PIPELINE, sink, epoch, "seen")


def ordered(*findings: Finding) -> list[tuple[str, int | None]]:
    shuffled = list(findings)
    random.Random(len(findings)).shuffle(shuffled)
    return [(one.code, one.epoch) for one in sorted(shuffled, key=urgency)]


DELETED = ExternalChange("deleted", "DELETE as version 9", fatal=True)


def test_missing_rows_come_before_the_change_that_may_have_cost_them() -> None:
    facts = with_rows(with_sink(true_facts(), disturbances=(DELETED,)), e3=6, e4=1)
    assert [(finding.code, finding.epoch) for finding in judge(facts).findings] == [
        ("A121", 3),
        ("A121", 4),
        ("A126", None),
    ]


@pytest.mark.parametrize("facts", [damaged(), with_rows(true_facts(), e3=6, e4=24)], ids=["damaged", "rows"])
def test_among_errors_the_first_is_the_one_that_decided_the_verdict(facts) -> None:
    result = judge(facts)
    assert result.findings[0].verdict is result.verdict


def test_an_error_about_a_late_epoch_comes_before_a_warning_about_an_early_one() -> None:
    assert ordered(at("A141", 1), at("A129", 9), at("A120")) == [("A129", 9), ("A141", 1), ("A120", None)]


def test_what_was_done_to_a_sink_comes_before_what_it_left_behind() -> None:
    assert ordered(at("A112", 2), at("A133", 3), at("A118", 5)) == [("A118", 5), ("A112", 2), ("A133", 3)]
    assert ordered(at("A124", 1), at("A126"), at("A135", 1), at("A134", 4)) == [
        ("A126", None),
        ("A134", 4),
        ("A124", 1),
        ("A135", 1),
    ]
    assert ordered(at("A142", 3), at("A132", 3)) == [("A132", 3), ("A142", 3)]


def test_among_equals_the_older_epoch_comes_first() -> None:
    assert ordered(at("A121", 12), at("A113", 9), at("A121", 2)) == [("A121", 2), ("A113", 9), ("A121", 12)]


def test_the_order_of_any_two_codes_is_decided() -> None:
    keys = [urgency(at(code, 1)) for code in RULES]
    assert all(one != other for one, other in itertools.combinations(keys, 2))


def test_what_needs_nothing_done_comes_last() -> None:
    severities = [RULES[code].severity for code, _ in ordered(*(at(code, 1) for code in RULES))]
    assert severities == sorted(severities, key=list(Severity).index)


def test_a_thousand_findings_of_one_kind_do_not_push_out_another() -> None:
    gone = dict.fromkeys(range(1, 1001), 0)
    facts = with_sink(true_facts([5] * 1000), rows=gone, disturbances=(DELETED,))
    result = judge(with_ledger(facts, intent=intent(1001)))
    shown = foremost(result.findings, 30)
    assert [one.code for one in shown] == ["A121"] * 28 + ["A126", "A150"]
    assert [one.epoch for one in shown[:28]] == list(range(1, 29))
    embedded = document_of(result, grid_of(facts, result))
    assert {one["code"] for one in embedded["findings"]} == {"A121", "A126", "A150"}
    assert embedded["findings_left_out"] == 1002 - FINDINGS


def test_few_findings_are_all_shown_as_they_stand() -> None:
    findings = judge(damaged()).findings
    assert foremost(findings, len(findings)) == findings
