"""A quarantine that is away, refuses rows, is somebody else's or old: nothing is lost, and each message leads on."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from integration.cases import each
from integration.servers import KafkaAddress
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceonly import Quality, Recovery, Storage, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.cli.app import app
from onceonly.errors import ConfigurationError
from onceonly.faults import Point
from onceonly.protocol import Sink
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_lab.servers.postgres import EmbeddedPostgres
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

EXPECT = {"no seven": "id % 10 <> 7"}


def aside(pg: PostgresTarget, **said: Any) -> PostgresSink:
    return PostgresSink(pg.dsn, table="orders_bad", **said)


def good(*numbers: int) -> list[int]:
    return [number for number in numbers if number % 10 != 7]


def kept(pg: PostgresTarget) -> list[int]:
    return sorted(json.loads(row)["id"] for (row,) in pg.says("select row from orders_bad"))


def verdict(*sinks: Sink, pipeline: str = "orders") -> Verdict:
    found = audit(None, pipeline, sinks).verdict
    for sink in sinks:
        sink.close()
    return found


# ---- a quarantine that does not take the row


REFUSES = {
    "a column of its own": (
        "add column team text not null default 'x'; alter table orders_bad alter column team drop default",
        "alter column team set default 'none'",
        "which the table wants and cannot fill itself",
    ),
    "a narrower text": ("alter column row type varchar(5) using 'x'", "alter column row type text", "22 characters"),
    "another type": ("alter column row type bigint using 1", "alter column row type text using ''", "bigint in the"),
    "a smaller number": ("alter column hash type int using 1", "alter column hash type bigint", "does not fit integer"),
    "a CHECK": ("add constraint short check (length(row) < 5) not valid", "drop constraint short", "CHECK constraint"),
    "a key": ("add constraint once primary key (reasons)", "drop constraint once", "the same unique key"),
    "a column less": ("drop column hash", "add column hash bigint", "no column hash"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [("another type", "a CHECK", "a column less"), pytest.param(tuple(REFUSES), marks=pytest.mark.slow)],
    ids=["three", "all"],
)
def test_a_table_that_does_not_take_a_bad_row_is_said_to_be_the_quarantine_and_once_it_does_all_goes_on(
    stream: FileStream, pg: PostgresTarget, cases: tuple[str, ...]
) -> None:
    """A column of another type, what only the commit meets, and a column that is not there."""
    refuses = {case: REFUSES[case] for case in cases}
    tables = {case: f"t{at}" for at, case in enumerate(refuses)}

    def sinks(case: str) -> tuple[PostgresSink, PostgresSink]:
        return PostgresSink(pg.dsn, table=tables[case]), PostgresSink(pg.dsn, table=f"{tables[case]}_bad")

    def wrapped() -> dict[str, Any]:
        found = {}
        for case in refuses:
            rows, bad = sinks(case)
            quality = Quality(expect=EXPECT, quarantine=bad)
            found[case] = exactly_once(rows, quality=quality, name=tables[case])
        return found

    def held(table: str, what: str) -> list[tuple[Any, ...]]:
        return pg.says(f"select {what} from {table} order by 1")

    well = dict.fromkeys(refuses, "")
    assert each(stream.receive(range(10)), wrapped()) == well
    for case, (breaks, _, _) in refuses.items():
        pg.says(f"alter table {tables[case]}_bad {breaks.replace('orders_bad', f'{tables[case]}_bad')}")
    seen = each(stream.receive(range(10, 20)), wrapped())
    wrong = {}
    for case, (_, mends, told) in refuses.items():
        table = tables[case]
        holds = {
            "says whose fault it is": f"[ONCE-E524] The quarantine postgres:{table}_bad cannot keep an invalid row"
            in seen[case],
            "says why": told in seen[case],
            "says what to do": "make the target take every row of texts reasons and row" in seen[case],
            "advises no quarantine": "quarantine such rows" not in seen[case],
            "no good row of an epoch whose bad row is nowhere": held(table, "id")
            == [(one,) for one in good(*range(10))],
            "one bad row": held(f"{table}_bad", "count(*)") == [(1,)],
        }
        wrong |= {f"{case}: {what}": seen[case] for what, is_so in holds.items() if not is_so}
        pg.says(f"alter table {table}_bad {mends}")
    assert wrong == {}
    assert each(stream, wrapped()) == well
    for case, table in tables.items():
        holds = {
            "good rows": held(table, "id") == [(one,) for one in good(*range(20))],
            "two bad rows": held(f"{table}_bad", "count(*)") == [(2,)],
            "audit": verdict(*sinks(case), pipeline=table) is Verdict.EXACTLY_ONCE,
        }
        wrong |= {f"{case}: {what}": table for what, is_so in holds.items() if not is_so}
    assert wrong == {}


# ---- a quarantine that is away


@pytest.fixture
def away(postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[PostgresTarget]:
    """A table on a server that a test may stop."""
    yield PostgresTarget(postgres.database(f"away{abs(hash(request.node.nodeid)) % 10**8}"))
    if not postgres.running:
        postgres.start()


@pytest.mark.slow
def test_a_quarantine_that_is_away_stops_the_query_before_anything_is_written_and_lets_it_go_on(
    stream: FileStream, delta: DeltaTarget, away: PostgresTarget, postgres: EmbeddedPostgres, tmp_path: Any
) -> None:
    def wrapped() -> Any:
        quality = Quality(expect=EXPECT, quarantine=aside(away))
        return exactly_once(delta.sink(), quality=quality, storage=Storage(ledger=str(tmp_path / "ledger.db")))

    postgres.stop()
    seen = stream.receive(range(10)).fail(wrapped())
    assert "[ONCE-E501] postgres:orders_bad" in seen, seen[:1500]
    assert not (tmp_path / "table" / "_delta_log").exists()
    postgres.start()
    stream.run(wrapped())
    postgres.stop()
    seen = stream.receive(range(10, 20)).fail(wrapped())
    assert "[ONCE-E501] postgres:orders_bad" in seen, seen[:1500]
    assert delta.ids() == good(*range(10))
    postgres.start()
    stream.run(wrapped())
    assert (delta.ids(), kept(away)) == (good(*range(20)), [7, 17])
    assert verdict(delta.sink(), aside(away)) is Verdict.EXACTLY_ONCE


@pytest.mark.slow
def test_a_quarantine_that_goes_away_between_the_commits_of_an_epoch_gets_it_from_the_next_start(
    stream: FileStream, delta: DeltaTarget, away: PostgresTarget, postgres: EmbeddedPostgres, tmp_path: Any
) -> None:
    def wrapped() -> Any:
        quality = Quality(expect=EXPECT, quarantine=aside(away, tuning=PostgresTuning(commit_timeout=5.0)))
        return exactly_once(delta.sink(), quality=quality, storage=Storage(ledger=str(tmp_path / "ledger.db")))

    stream.receive(range(10)).run(wrapped())
    faults.arm(Point.COMMIT_AFTER, postgres.stop)
    seen = stream.receive(range(10, 20)).fail(wrapped())
    faults.disarm()
    assert "[ONCE-E" in seen, seen[:1500]
    assert "postgres:orders_bad" in seen
    assert delta.ids() == good(*range(20))
    postgres.start()
    assert kept(away) == [7]
    stream.receive(range(20, 30)).run(wrapped())
    assert (delta.ids(), kept(away)) == (good(*range(30)), [7, 17, 27])
    assert verdict(delta.sink(), aside(away)) is Verdict.EXACTLY_ONCE


# ---- a quarantine of somebody else


@pytest.mark.slow
def test_a_quarantine_that_another_pipeline_writes_to_is_refused_by_its_name_and_another_table_is_not(
    stream: FileStream, pg: PostgresTarget, spark: SparkSession, tmp_path: Any
) -> None:
    other = FileStream(spark, tmp_path / "other", "others")
    other.receive(range(10)).run(
        exactly_once(PostgresSink(pg.dsn, "others"), quality=Quality(expect=EXPECT, quarantine=aside(pg)))
    )

    def wrapped(table: str, **said: Any) -> Any:
        quality = Quality(expect=EXPECT, quarantine=PostgresSink(pg.dsn, table))
        return exactly_once(pg.sink(), quality=quality, **said)

    seen = stream.receive(range(10)).fail(wrapped("orders_bad"))
    assert "[ONCE-E201] postgres:orders_bad already holds rows" in seen, seen[:1500]
    assert 'pipeline "others" wrote to this very table' in seen
    assert pg.says("select to_regclass('orders')") == [(None,)]
    # The last of the ways out that it prints.
    stream.run(wrapped("orders_bad", recovery=Recovery(adopt="here")))
    assert pg.ids() == good(*range(10))
    assert kept(pg) == [7, 7]


# ---- what is older than its time


@pytest.mark.slow
def test_bad_rows_go_once_they_are_older_than_their_time_and_an_audit_is_exact(
    stream: FileStream, pg: PostgresTarget
) -> None:
    def wrapped(keep: str) -> Any:
        return exactly_once(pg.sink(), quality=Quality(expect=EXPECT, quarantine=aside(pg), keep_for=keep))

    stream.receive(range(10), range(10, 20)).run(wrapped("1 day"))
    assert kept(pg) == [7, 17]
    time.sleep(1.2)
    stream.receive(range(20, 30)).run(wrapped("1 second"))
    assert kept(pg) == [27]
    assert pg.ids() == good(*range(30))
    assert verdict(pg.sink(), aside(pg)) is Verdict.EXACTLY_ONCE
    pg.says("delete from orders_bad")
    assert verdict(pg.sink(), aside(pg)) is Verdict.GAPS


@pytest.mark.slow
def test_old_rows_of_a_delta_quarantine_go_as_its_refusal_says(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape('DeltaSink(..., external_changes="deletes")')):
        exactly_once(pg.sink(), quality=Quality(expect=EXPECT, quarantine=delta.sink(), keep_for="90 days"))

    def wrapped() -> Any:
        return exactly_once(
            pg.sink(), quality=Quality(expect=EXPECT, quarantine=delta.sink(external_changes="deletes"))
        )

    stream.receive(range(10), range(10, 20)).run(wrapped())
    delta.table.delete("row like '%17%'")
    stream.receive(range(20, 30)).run(wrapped())
    assert delta.table.to_pyarrow_table().num_rows == 2
    assert verdict(pg.sink(), delta.sink(external_changes="deletes")) is Verdict.EXACTLY_ONCE


# ---- looked at


@pytest.mark.kafka
def test_what_was_set_aside_is_shown_out_of_each_kind_of_sink(
    stream: FileStream, pg: PostgresTarget, tmp_path: Any, any_kafka: KafkaAddress
) -> None:
    quarantines: dict[str, Sink] = {
        "postgres": aside(pg),
        "delta": DeltaSink(str(tmp_path / "bad")),
        "kafka": KafkaSink(any_kafka.servers, any_kafka.topic("shown-aside")),
    }
    expect = {**EXPECT, "small": "id < 15"}
    wrapped = {
        kind: exactly_once(
            PostgresSink(pg.dsn, table=f"beside_{kind}"),
            quality=Quality(expect=expect, quarantine=quarantine),
            storage=Storage(ledger=pg.dsn),
            name=kind,
        )
        for kind, quarantine in quarantines.items()
    }
    assert each(stream.receive(range(10), range(10, 20)), wrapped) == dict.fromkeys(quarantines, "")
    for quarantine in quarantines.values():
        quarantine.close()
    both = ["no seven", "small"]
    later = [(2, 15, ["small"]), (2, 16, ["small"]), (2, 17, both), (2, 18, ["small"]), (2, 19, ["small"])]
    rows = [(1, 7, ["no seven"]), *later]
    found = {kind: shown(kind, pg.dsn) for kind in quarantines}
    assert {kind: one for kind, one in found.items() if one != rows} == {}
    listed = {kind: asked(kind, pg.dsn) for kind in quarantines}
    counts = {kind: (one["bad"], one["reasons"]) for kind, one in listed.items()}
    assert {kind: one for kind, one in counts.items() if one != (6, {"small": 5, "no seven": 2})} == {}
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    epochs = {kind: [epoch.epoch.number for epoch in ledger.epochs(kind)] for kind in quarantines}
    ledger.close()
    assert {kind: one for kind, one in epochs.items() if one != [1, 2]} == {}


def asked(pipeline: str, ledger: str, *options: str) -> dict[str, Any]:
    """What ``onceonly quarantine`` tells of a pipeline."""
    done = CliRunner().invoke(app, ["quarantine", pipeline, *options, "--ledger", ledger, "-o", "json"])
    assert done.exit_code == 0, (done.output, done.exception)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def shown(pipeline: str, ledger: str) -> list[tuple[int, int, list[str]]]:
    """Epoch, id and broken expectations of each row that was set aside."""
    rows = asked(pipeline, ledger, "--rows")["rows"]
    return sorted((row["epoch"], json.loads(row["row"])["id"], [why["rule"] for why in row["reasons"]]) for row in rows)
