"""The suite on sinks that take rows one by one: what they promise is tried, the rest is said to be not promised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.sinks.broken.puts import PUTS, MarkerFirst, harness_of
from tests.sinks.memory_harness import MemoryHarness
from tests.sinks.tutorial import FolderHarness, FolderSink

from onceonly_lab.conformance import (
    CLAIMS,
    IDEMPOTENT_CLAIMS,
    IdempotentSinkConformance,
    NotPromised,
    Report,
    SinkHarness,
    check,
)
from onceonly_lab.conformance.claims_fencing import CLAIMS as FENCING
from onceonly_lab.conformance.claims_kills import CLAIMS as KILLING
from onceonly_lab.conformance.claims_kills import a_marker_never_stands_before_all_of_its_rows as marker_last

QUICK = [claim for claim in CLAIMS if claim not in KILLING]


@pytest.mark.slow
class TestFolder(IdempotentSinkConformance):
    """Each claim by itself; ``make test`` asks for all of them in one report, below."""

    @pytest.fixture
    def harness(self) -> Iterator[SinkHarness]:
        harness = FolderHarness()
        harness.moments = 10
        yield harness
        harness.close()


@pytest.fixture(scope="module")
def report() -> Report:
    """The whole suite on the tutorial's folder, killed at few moments."""
    return check(harness_of(FolderSink, 12))


def test_what_needs_a_transaction_is_named_with_its_reason_and_counts_neither_as_held_nor_as_untested(
    report: Report,
) -> None:
    named = {result.claim.name: result.not_promised for result in report.not_promised}
    assert named == {claim.name: claim.transaction for claim in CLAIMS if claim.transaction}
    assert {claim.name for claim in KILLING} <= set(named)
    assert not {result.claim.name for result in report.untested} & set(named)
    for name, reason in named.items():
        assert f"{name}: not promised. {reason}" in str(report)
        assert reason
        assert reason.endswith(".")
    held = len(report.results) - len(report.untested) - len(named)
    assert f"{held} of {len(CLAIMS) + len(IDEMPOTENT_CLAIMS)} claims hold, " in str(report)
    assert f", {len(named)} not promised" in str(report)


def test_a_sink_that_is_certified_as_idempotent_does_not_conform_to_the_contract(report: Report) -> None:
    assert not report.failures, report
    assert (report.certified, report.conforms) == ("idempotent", False)
    assert str(report).splitlines()[-1].startswith("certified as idempotent, not as exactly once: ")
    told = report.to_json()
    assert (told["certified"], told["conforms"]) == ("idempotent", False)
    assert {claim["name"] for claim in told["claims"] if claim["not_promised"]} == {
        result.claim.name for result in report.not_promised
    }


def test_the_claims_of_its_own_were_tried_amid_rows(report: Report) -> None:
    own = {result.claim: result for result in report.results if result.claim in IDEMPOTENT_CLAIMS}
    assert set(own) == set(IDEMPOTENT_CLAIMS)
    for result in own.values():
        assert result.untested is None
        assert "epochs were cut off" in (result.note or "")


def test_a_sink_with_transactions_is_certified_as_before() -> None:
    report = check(MemoryHarness)
    assert (report.certified, report.conforms) == ("exactly once", True)
    assert not report.not_promised
    assert "certified" not in str(report)
    assert report.to_json()["certified"] == "exactly once"


def test_by_claims_alone_that_every_sink_must_hold_a_sink_without_transactions_is_not_certified() -> None:
    report = check(FolderHarness, [claim for claim in CLAIMS if "gap" in claim.name])
    assert not report.failures
    assert (report.certified, report.conforms) == (None, False)


@pytest.fixture(scope="module")
def marker_first() -> Report:
    """The claims of its own on a sink that puts the marker before the rows."""
    return check(harness_of(MarkerFirst), IDEMPOTENT_CLAIMS)


def test_nothing_is_certified_where_nothing_was_promised_or_something_broke(marker_first: Report) -> None:
    assert check(FolderHarness, FENCING[:2]).certified is None
    assert (marker_first.certified, marker_first.conforms) == (None, False)
    assert "certified" not in str(marker_first)


def test_a_claim_that_is_not_promised_is_skipped_by_pytest_with_its_reason() -> None:
    [claim] = [claim for claim in CLAIMS if claim.name == "rows_and_marker_appear_together"]
    with closing(FolderHarness()) as harness, pytest.raises(NotPromised, match="parts of an epoch"):
        claim.check(harness)


def test_each_sink_that_puts_in_the_wrong_way_is_caught_by_its_own_claims(marker_first: Report) -> None:
    reports = {MarkerFirst: marker_first}
    for broken in PUTS.keys() - {MarkerFirst}:
        claims = [claim for claim in IDEMPOTENT_CLAIMS if claim.name in PUTS[broken]]
        reports[broken] = check(harness_of(broken), claims)
    caught = {broken: {result.claim.name for result in report.failures} for broken, report in reports.items()}
    assert caught == PUTS, "\n".join(map(str, reports.values()))


@pytest.mark.slow
@pytest.mark.parametrize("broken", list(PUTS), ids=lambda broken: broken.__name__)
def test_a_sink_that_puts_in_the_wrong_way_is_caught_by_no_other_claim(broken: type[Any]) -> None:
    report = check(harness_of(broken), [*QUICK, *IDEMPOTENT_CLAIMS])
    assert {result.claim.name for result in report.failures} == PUTS[broken], report


def test_a_marker_before_its_rows_is_called_that(marker_first: Report) -> None:
    [result] = [result for result in marker_first.failures if result.claim.name == marker_last.__name__]
    assert "stands and" in (result.evidence or "")
    assert "of its 120 rows" in (result.evidence or "")


def test_every_claim_of_its_own_catches_a_broken_sink() -> None:
    assert {claim for claims in PUTS.values() for claim in claims} == {claim.name for claim in IDEMPOTENT_CLAIMS}
