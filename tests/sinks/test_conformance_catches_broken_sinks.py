"""The suite passes the reference model and catches each broken sink, by the claims that are meant to catch it."""

import pytest
from tests.sinks.broken import VERDICTS
from tests.sinks.memory_harness import MemoryHarness

from onceonly_sinks.conformance import CLAIMS, Claim, ConformanceFailure, Report, SinkConformance, SinkHarness, check
from onceonly_sinks.conformance.racing import CLAIMS as RACING
from onceonly_sinks.memory import MemorySink

BY_LUCK = {claim.name for claim in RACING}
"""A race may also catch a sink that it is not meant to catch."""

ACCIDENTS = ("AttributeError", "TypeError", "NameError", "IndexError", "KeyError", "ValueError")
"""Evidence of a mistake in a broken sink or in a claim, not of a broken promise."""


class TestMemoryAppend(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


class TestMemoryUpsert(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(key=("id",))


class TestMemoryUpsertWithADeleteColumn(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(key=("id",), sequence="step", delete="gone")


def caught(report: Report) -> set[str]:
    return {result.claim.name for result in report.failures}


@pytest.mark.parametrize("broken", VERDICTS, ids=lambda broken: broken.__name__)
def test_a_broken_sink_is_caught_by_the_claims_meant_for_it(broken: type[MemorySink]) -> None:
    verdict = VERDICTS[broken]

    claims = [claim for claim in CLAIMS if claim.name in verdict.claims or claim.name not in BY_LUCK]

    report = check(lambda: MemoryHarness(broken), claims, seconds=30)

    assert verdict.claims <= caught(report), report
    if not verdict.others:
        assert caught(report) == verdict.claims, report
    accidents = [result for result in report.failures if any(name in (result.evidence or "") for name in ACCIDENTS)]
    assert not accidents, report


def test_every_claim_catches_a_broken_sink() -> None:
    meant = {claim for verdict in VERDICTS.values() for claim in verdict.claims}
    assert meant == {claim.name for claim in CLAIMS}


def test_every_claim_is_one_sentence_under_its_own_name() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.text.endswith("."), claim.name
        assert hasattr(SinkConformance, f"test_{claim.name}")


def hangs(harness: SinkHarness) -> None:
    """It waits for something that never comes."""
    import threading

    threading.Event().wait(5)


def test_a_sink_that_hangs_fails_the_claim() -> None:
    claim = Claim("hangs", "It hangs.", hangs)
    with pytest.raises(ConformanceFailure, match=r"did not end within 0\.1 s"):
        claim.check(MemoryHarness(), seconds=0.1)


def leaks(harness: SinkHarness) -> None:
    """It fails with a secret."""
    raise RuntimeError("cannot connect to postgresql://me:hunter2@db/orders")


def test_evidence_holds_no_secret() -> None:
    report = check(MemoryHarness, claims=[Claim("leaks", "It leaks.", leaks)])
    assert not report.conforms
    assert "hunter2" not in str(report)
    assert "postgresql://me:***@db/orders" in str(report)


def test_a_report_of_no_claims_conforms_to_nothing() -> None:
    assert not check(MemoryHarness, claims=[]).conforms


def test_a_report_counts_and_names_what_is_broken() -> None:
    broken = next(broken for broken in VERDICTS if broken.__name__ == "AcceptsGaps")
    report = check(lambda: MemoryHarness(broken), claims=[claim for claim in CLAIMS if "gap" in claim.name])
    assert str(report).endswith("0 of 1 claims hold")
    assert report.to_json()["conforms"] is False
    assert report.to_json()["claims"][0]["evidence"].startswith(
        "An epoch that leaves one out is refused. Epoch 4 after 2"
    )


def test_the_suite_closes_every_target() -> None:
    closed: list[SinkHarness] = []

    class Closing(MemoryHarness):
        def close(self) -> None:
            closed.append(self)

    check(Closing, claims=CLAIMS[:3])
    assert len(closed) == 3
