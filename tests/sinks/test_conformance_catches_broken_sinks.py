"""The suite passes the reference model and catches each broken sink, by the claims that are meant to catch it."""

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.broken import VERDICTS
from tests.sinks.broken.mishaps import MISHAPS, KeepsWhatItRefuses, OnePipelineForAll, RefusesDecimals, RefusesEveryType
from tests.sinks.broken.standing import STANDS
from tests.sinks.broken.torn import TORN
from tests.sinks.broken.twins import TWINS
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.memory_harness import MemoryHarness
from tests.sinks.postgres_harness import PostgresHarness
from tests.sinks.sqlite_harness import RuledSQLiteSink, WholeSQLiteHarness
from tests.sinks.tutorial import SQLiteSink
from tests.sinks.variants import asked_for_what_it_changes

from onceonly.protocol.row_rules import Between, Characters, Rule
from onceonly_lab.conformance import (
    CLAIMS,
    Claim,
    ConformanceFailure,
    NotTested,
    Report,
    SinkConformance,
    SinkHarness,
    check,
)
from onceonly_lab.conformance.claims_cuts import CLAIMS as CUTS
from onceonly_lab.conformance.claims_failures import (
    a_failure_that_passes_is_no_end,
    a_locked_target_is_waited_for_or_refused_with_a_code,
    every_type_comes_back_or_is_refused,
)
from onceonly_lab.conformance.claims_kills import CLAIMS as KILLING
from onceonly_lab.conformance.claims_races import CLAIMS as RACING
from onceonly_lab.conformance.claims_replace import KILLING_CLAIMS as REPLACING
from onceonly_lab.conformance.claims_reset import CLAIMS as STANDING
from onceonly_lab.conformance.claims_rules import CLAIMS as RULES
from onceonly_lab.conformance.type_table import Case, Kind
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.postgres import PostgresSink
from onceonly_sinks.sql import Failure

BY_LUCK = {claim.name for claim in RACING}
"""A race may also catch a sink that it is not meant to catch."""

ACCIDENTS = ("AttributeError", "TypeError", "NameError", "IndexError", "KeyError", "ValueError")
"""Evidence of a mistake in a broken sink or in a claim, not of a broken promise."""


class TestTutorial(SinkConformance):
    @pytest.fixture
    def harness(self) -> Iterator[SinkHarness]:
        harness = WholeSQLiteHarness()
        yield harness
        harness.close()


class TestMemoryAppend(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()


@asked_for_what_it_changes
class TestMemoryUpsert(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(key=("id",))


@asked_for_what_it_changes
class TestMemoryUpsertWithADeleteColumn(SinkConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness(key=("id",), sequence="step", delete_flag="gone")


def caught(report: Report) -> set[str]:
    return {result.claim.name for result in report.failures}


def accidents(report: Report) -> list[str]:
    evidence = [result.evidence or "" for result in report.failures]
    return [text for text in evidence if any(name in text for name in ACCIDENTS)]


def test_each_broken_sink_is_caught_by_the_claims_meant_for_it() -> None:
    wrong: dict[str, str] = {}
    for broken, verdict in VERDICTS.items():
        report = check(
            partial(MemoryHarness, broken), [one for one in CLAIMS if one.name in verdict.claims], seconds=30
        )
        if caught(report) != verdict.claims or accidents(report):
            wrong[broken.__name__] = str(report)
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("broken", VERDICTS, ids=lambda broken: broken.__name__)
def test_a_broken_sink_is_caught_by_no_claim_but_those_meant_for_it(broken: type[MemorySink]) -> None:
    verdict = VERDICTS[broken]

    claims = [claim for claim in CLAIMS if claim.name in verdict.claims or claim.name not in BY_LUCK]

    report = check(lambda: MemoryHarness(broken), claims, seconds=30)

    assert verdict.claims <= caught(report), report
    if not verdict.others:
        assert caught(report) == verdict.claims, report
    assert not accidents(report), report


@pytest.mark.parametrize("broken", list(MISHAPS), ids=lambda broken: broken.__name__)
def test_a_sink_that_misunderstands_its_destination_is_called_by_its_claim(
    broken: type[Any], request: pytest.FixtureRequest
) -> None:
    report = check(mishap(broken, request), [claim for claim in CLAIMS if claim.name == MISHAPS[broken]])
    assert caught(report) == {MISHAPS[broken]}, report


@pytest.mark.slow
@pytest.mark.parametrize("broken", list(MISHAPS), ids=lambda broken: broken.__name__)
def test_a_sink_that_misunderstands_its_destination_is_called_by_no_claim_about_another_mishap(
    broken: type[Any], request: pytest.FixtureRequest
) -> None:
    claims = [claim for claim in CLAIMS if claim.name in MISHAPS.values() and "type" not in claim.name]
    report = check(mishap(broken, request), claims)
    assert caught(report) == {MISHAPS[broken]}, report


def mishap(broken: type[Any], request: pytest.FixtureRequest) -> Callable[[], SinkHarness]:
    """Makes targets of a sink that misunderstands what happens to them."""
    if issubclass(broken, PostgresSink):
        dsn = request.getfixturevalue("postgres").database("mishaps")
        return lambda: PostgresHarness(dsn, sink=broken)
    return lambda: WholeSQLiteHarness(broken)


def test_a_sink_with_the_rules_of_its_file_holds_every_claim_about_rules() -> None:
    report = check(lambda: WholeSQLiteHarness(RuledSQLiteSink), RULES)
    assert [result.held for result in report.results] == [True] * len(RULES), report


@pytest.mark.parametrize(
    ("rule", "evidence"),
    [
        (Rule("notes", Characters(9)), r'"notes: at most 9 characters" is on a column that the rows do not have'),
        (Rule("note", Between(1, 9)), r'"note: from 1 to 9" does not fit values of type string'),
        ("note IS NOT NULL", "neither a Rule nor a Condition"),
    ],
    ids=str,
)
def test_a_rule_that_fits_no_column_is_named(rule: Any, evidence: str) -> None:
    class Misfit(RuledSQLiteSink):
        more = (rule,)

    report = check(lambda: WholeSQLiteHarness(Misfit), RULES[:1])
    assert caught(report) == {RULES[0].name}
    assert re.search(evidence, str(report))
    assert not accidents(report)


def test_a_sink_that_takes_an_uncertain_failure_for_a_refusal_is_caught() -> None:
    class Careless(SQLiteSink):
        def read(self, error: Exception) -> Failure:
            return Failure("it failed", transaction_is_over=True)

    lost = [claim for claim in CLAIMS if claim.name == "a_commit_whose_answer_was_lost_is_unknown_and_there_once"]
    assert caught(check(lambda: WholeSQLiteHarness(Careless), lost)) == {claim.name for claim in lost}


@pytest.mark.parametrize("broken", list(STANDS), ids=lambda broken: broken.__name__)
def test_a_sink_that_stands_where_its_rows_are_not_is_caught(broken: type[DeltaSink], tmp_path: Path) -> None:
    class Harness(DeltaHarness):
        def connect(self) -> DeltaSink:
            return broken(self.path)

    report = check(lambda: Harness(tmp_path / uuid.uuid4().hex), STANDING)
    assert caught(report) == STANDS[broken], report


def test_what_cannot_be_tried_is_said_with_its_reason() -> None:
    report = check(MemoryHarness)
    assert report.conforms
    assert {result.claim.name for result in report.untested} == {
        *(claim.name for claim in (*KILLING, *REPLACING, *CUTS)),
        *(claim for broken, claim in MISHAPS.items() if broken is not OnePipelineForAll),
    }
    reasons = {result.claim.name: result.untested for result in report.untested}
    for name, reason in reasons.items():
        assert f"{name}: not tested. {reason}" in str(report)
    assert str(report).endswith(f"{len(CLAIMS) - len(reasons)} of {len(CLAIMS)} claims hold, {len(reasons)} not tested")
    told = {claim["name"]: claim["untested"] for claim in report.to_json()["claims"]}
    assert {name: reason for name, reason in told.items() if reason} == reasons


def test_a_report_of_claims_that_were_not_tried_conforms_to_nothing() -> None:
    assert not check(MemoryHarness, claims=KILLING).conforms


def test_every_claim_catches_a_broken_sink() -> None:
    meant = {claim for verdict in VERDICTS.values() for claim in verdict.claims}
    # Only a variant has rows that replace one another.
    meant |= {claim.name for claim in CUTS} & {claim for twin in TWINS for claim in twin.claims}
    meant |= {claim for claims in (*TORN.values(), *STANDS.values()) for claim in claims} | set(MISHAPS.values())
    assert meant == {claim.name for claim in CLAIMS}


def test_every_claim_is_one_sentence_under_its_own_name() -> None:
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert [claim.name for claim in CLAIMS if not re.fullmatch(r"[A-Z]([^.]|\.\S)*\.", claim.text)] == []
    assert [claim.name for claim in CLAIMS if not hasattr(SinkConformance, f"test_{claim.name}")] == []


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


def test_a_lock_that_keeps_nobody_out_is_no_answer() -> None:
    """A harness whose locked() does not lock says nothing about the sink."""

    class Unlocked(MemoryHarness):
        def locked(self) -> AbstractContextManager[object]:
            return nullcontext()

    with pytest.raises(NotTested, match="kept nobody out"):
        a_locked_target_is_waited_for_or_refused_with_a_code(Unlocked())


def test_a_failure_that_never_came_shows_nothing() -> None:
    """A harness whose deadlocked() disturbs nobody says nothing about the sink."""

    class Undisturbed(MemoryHarness):
        def deadlocked(self) -> AbstractContextManager[object]:
            return nullcontext()

    with pytest.raises(NotTested, match="Nothing failed"):
        a_failure_that_passes_is_no_end(Undisturbed())


class Unsaid(MemoryHarness):
    """Says nothing of what the sink makes of a value."""

    def cell(self, kind: Kind, case: Case) -> None:
        return None


def test_a_sink_that_says_nothing_of_its_types_may_refuse_some_of_them() -> None:
    note = every_type_comes_back_or_is_refused(Unsaid(RefusesDecimals))
    assert re.fullmatch(r"[1-9]\d* values came back, [1-9]\d* were refused", note)


@pytest.mark.parametrize(
    ("broken", "evidence"),
    [(RefusesEveryType, "Every value was refused; the first: "), (KeepsWhatItRefuses, "was refused, and rows stand")],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_sink_that_refuses_all_or_keeps_what_it_refuses_is_caught(broken: type[MemorySink], evidence: str) -> None:
    with pytest.raises(ConformanceFailure, match=evidence):
        every_type_comes_back_or_is_refused(Unsaid(broken))
