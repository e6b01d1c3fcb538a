"""What destinations demand of values: said without a value, and judged by Python."""

from __future__ import annotations

import pytest
from tests.demands import SAMPLES, Sample, aware

from onceonly.protocol.row_rules import Between, Characters, Digits, NotNull, OneOf, PlainText, Rule


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=[*SAMPLES])
def test_a_sample_meets_and_breaks_its_demand(sample: Sample) -> None:
    found = [Rule("a", sample.demand).met(aware(sample.kind, one)) for one in sample.values(20)]
    assert {True, False} == set(found)


def test_a_null_is_what_only_not_null_asks_for() -> None:
    assert not Rule("a", NotNull()).met(None)
    assert Rule("a", Characters(1)).met(None)
    assert not Rule("a", NotNull(), each=True).met(["x", None])
    assert Rule("a", NotNull(), each=True).met(None)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule("a", NotNull()), "a: not null"),
        (Rule("a", Between(-1, 1)), "a: from -1 to 1"),
        (Rule("a", Digits(5, 2)), "a: at most 5 digits, 2 of them behind the point"),
        (Rule("a", PlainText(), each=True), "a: each text in UTF-8 without NUL"),
        (Rule("a", OneOf(("x", "y"))), "a: one of x, y"),
        (Rule("a", OneOf(tuple("abcdef"))), "a: one of a, b, c, d, e ..."),
    ],
)
def test_a_rule_is_said_without_a_value(rule: Rule, said: str) -> None:
    assert rule.says == said
