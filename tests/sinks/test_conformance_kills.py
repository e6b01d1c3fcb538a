"""The suite kills: no sink that commits rows and marker in two transactions is certified, in no run.

Two of them, which all claims but one catch, are run every time, and twenty times by ``make slow``; all of them twenty
times by ``make torn``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.broken.torn import (
    REPLACING,
    TORN,
    PostgresMarkerFirst,
    SQLiteDeletesFirst,
    SQLiteReplacing,
)
from tests.sinks.delta_harness import DeltaHarness
from tests.sinks.kafka_harness import KafkaHarness
from tests.sinks.postgres_harness import PostgresHarness
from tests.sinks.sqlite_harness import WholeSQLiteHarness

from onceonly_lab.conformance import Report, SinkHarness, check, claims_kills, claims_races, claims_replace
from onceonly_sinks.postgres import PostgresSink

RUNS = 20
EVERY_TIME = (SQLiteDeletesFirst, PostgresMarkerFirst)
CLAIMS = (*claims_kills.CLAIMS, *claims_replace.KILLING_CLAIMS)


def harness_of(torn: type[Any], request: pytest.FixtureRequest) -> SinkHarness:
    if issubclass(torn, PostgresSink):
        return PostgresHarness(request.getfixturevalue("postgres").database("torn"), sink=torn)
    return WholeSQLiteHarness(torn)


def kills(torn: type[Any], request: pytest.FixtureRequest) -> Report:
    return Report(tuple(result for report in one_by_one(torn, request) for result in report.results))


def one_by_one(torn: type[Any], request: pytest.FixtureRequest) -> Iterator[Report]:
    def harness() -> SinkHarness:
        made = harness_of(torn, request)
        made.moments = 200
        return made

    yield from (check(harness, [claim]) for claim in CLAIMS if claim.name in TORN[torn])


@pytest.mark.parametrize(
    "torn",
    [pytest.param(torn, marks=() if torn in EVERY_TIME else pytest.mark.slow, id=torn.__name__) for torn in TORN],
)
def test_a_torn_sink_is_caught_by_each_claim_that_kills(torn: type[Any], request: pytest.FixtureRequest) -> None:
    report = kills(torn, request)
    assert {result.claim.name for result in report.failures} == TORN[torn], report


def test_a_sink_that_replaces_in_one_transaction_holds_what_the_suite_claims() -> None:
    claims = [*claims_replace.CLAIMS, *claims_replace.KILLING_CLAIMS]
    report = check(lambda: WholeSQLiteHarness(SQLiteReplacing), claims)
    assert report.conforms, str(report)
    assert [one.untested for one in report.untested] == [
        "Nobody else can add rows to the target: the harness has no intrude().",
        "No statement can be held between sink and destination: the harness has no wire().",
    ]


def test_a_replacement_in_two_transactions_is_called_that() -> None:
    [claim] = [claim for claim in CLAIMS if claim.name == REPLACING]
    [result] = check(lambda: WholeSQLiteHarness(SQLiteDeletesFirst), [claim]).failures
    assert "does not stand; 0 rows are too many and 20 are missing" in (result.evidence or "")


@pytest.mark.slow
@pytest.mark.parametrize("torn", TORN, ids=lambda torn: torn.__name__)
def test_a_torn_sink_is_certified_in_no_run(torn: type[Any], request: pytest.FixtureRequest) -> None:
    """Certified is what passes every claim, so a run ends with the first that does not hold."""
    certified = sum(all(report.conforms for report in one_by_one(torn, request)) for _ in range(RUNS))
    assert certified == 0, f"{torn.__name__} was certified in {certified} of {RUNS} runs"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.kafka
@pytest.mark.parametrize(("kind", "moments"), [("postgres", 200), ("delta", 50), ("kafka", 24)])
def test_a_sink_is_killed_and_watched_at_many_moments(
    kind: str, moments: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    def harness() -> SinkHarness:
        made = _harness(kind, request, tmp_path)
        made.moments = moments
        return made

    watched = [
        claim for claim in claims_races.CLAIMS if claim.name == claims_races.rows_and_marker_appear_together.__name__
    ]
    report = check(harness, [*CLAIMS, *watched], seconds=600)
    assert report.conforms, str(report)
    assert kind != "postgres" or not report.untested, report


def _harness(kind: str, request: pytest.FixtureRequest, folder: Path) -> SinkHarness:
    match kind:
        case "postgres":
            return PostgresHarness(request.getfixturevalue("postgres").database("killed"))
        case "delta":
            place = folder / uuid.uuid4().hex
            place.mkdir()
            return DeltaHarness(place)
        case _:
            return KafkaHarness(request.getfixturevalue("kafka"))
