"""What an audit makes of epochs that were computed again: a finding a range, and the verdict about sinks stands."""

from __future__ import annotations

from tests.audit.histories import PIPELINE, epoch_after, ledger_of, sink_of

from onceonly.audit import AuditResult, Facts, Verdict, judge
from onceonly.audit.certificate import Certificate, Query, RecomputedRange, Span
from onceonly_checkpoints.digests import Digest

PLAIN = Query(stateful=False, clock=False, nondeterministic=None)
EQUAL = Span(1, 1, RecomputedRange.EQUAL, Digest(10), Digest(10))
DIFFERS = Span(2, 2, RecomputedRange.DIFFERS, Digest(7), Digest(6))
CANNOT = Span(1, 2, RecomputedRange.CANNOT, Digest(17), why="part-0001 is gone (E230)")


def judged(*spans: Span) -> AuditResult:
    one = epoch_after(None, 10)
    line = [one, epoch_after(one, 7)]
    return judge(Facts(PIPELINE, (sink_of(line),), ledger_of(line), recomputed=Certificate(PIPELINE, spans, PLAIN)))


def test_epochs_that_are_equal_are_told_with_their_coverage() -> None:
    result = judged(EQUAL)
    [found] = result.findings
    assert (found.code, found.evidence) == ("A187", "epoch 1: 10 rows")
    assert (result.verdict, result.exit_code) == (Verdict.EXACTLY_ONCE, 0)


def test_an_epoch_that_differs_is_named_and_the_verdict_about_the_sinks_stands() -> None:
    result = judged(EQUAL, DIFFERS)
    assert [found.code for found in result.findings] == ["A185", "A187"]
    assert (result.verdict, result.exit_code) == (Verdict.EXACTLY_ONCE, 1)
    assert "First disagreement: epoch 2: epoch 2: 6 rows, and 7 on record (A185)" in result.scope
    assert result.epochs[1].codes == ("A185",)
    assert "epochs show 2 --query orders" in result.findings[0].remedy


def test_what_cannot_be_computed_disagrees_with_nothing_and_does_not_pass() -> None:
    result = judged(CANNOT)
    [found] = result.findings
    assert (found.code, found.evidence) == ("A186", "epochs 1..2: part-0001 is gone (E230)")
    assert "First disagreement" not in result.scope
    assert (result.verdict, result.exit_code) == (Verdict.EXACTLY_ONCE, 1)
