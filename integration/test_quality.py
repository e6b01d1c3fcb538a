"""Expectations: a row that breaks one is set aside in the epoch that it came with, once, and reaches no other sink."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from integration.cases import each
from integration.processes import Drivers, was_killed
from integration.servers import KafkaAddress
from integration.several import Several
from integration.stage import ROWS
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget, events
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from tests.kafka_client import committed

from onceonly import Output, Quality, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.kafka import KafkaSink
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import PostgresSink, PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

EXPECT = {"no seven": "id % 10 <> 7", "no eight or seven": "id % 10 < 7"}
"""Of ten rows 0 to 9, seven breaks both, eight and nine one."""


def aside(pg: PostgresTarget, **said: Any) -> PostgresSink:
    return PostgresSink(pg.dsn, table="orders_bad", **said)


def good(*spans: range) -> list[int]:
    return [number for span in spans for number in span if number % 10 < 7]


def bad(pg: PostgresTarget) -> list[tuple[int, list[str]]]:
    """Id and broken expectations of each row that is set aside."""
    rows = pg.says("select row, reasons from orders_bad")
    return sorted((json.loads(row)["id"], [reason["rule"] for reason in json.loads(why)]) for row, why in rows)


def broken(*spans: range) -> list[tuple[int, list[str]]]:
    both, one = ["no seven", "no eight or seven"], ["no eight or seven"]
    return [(number, both if number % 10 == 7 else one) for span in spans for number in span if number % 10 >= 7]


def test_a_bad_row_is_set_aside_once_and_reaches_no_other_sink(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    even = Output(delta.sink(), name="even", where="id % 2 = 0", select=["id", "word"])
    quality = Quality(expect=EXPECT, quarantine=aside(pg))
    with caplog.at_level(logging.INFO, "onceonly"):
        stream.receive(range(20), range(20, 27), range(30, 40)).run(exactly_once(pg.sink(), even, quality=quality))
    assert pg.ids() == good(range(27), range(30, 40))
    assert delta.ids() == [number for number in good(range(27), range(30, 40)) if number % 2 == 0]
    assert bad(pg) == broken(range(27), range(30, 40))
    assert json.loads(pg.says("select row from orders_bad order by 1")[0][0]) == {"id": 17, "word": "w17"}
    assert "epoch 1 committed" in caplog.text
    assert "14 rows; even 8, filtered 6; bad 6 (no eight or seven 6, no seven 2)" in caplog.text
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    judged = [pg.sink(), delta.sink(), aside(pg)]
    found = audit(ledger, "orders", judged, spark=spark)
    for sink in judged:
        sink.close()
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
    said = events(ledger, EventKind.QUARANTINED)
    assert said == [
        "6 of 20 rows quarantined: no eight or seven 6, no seven 2",
        "3 of 10 rows quarantined: no eight or seven 3, no seven 1",
    ]
    epoch = next(iter(ledger.epochs("orders"))).epoch
    assert epoch.bad is not None
    assert (epoch.bad.digest.rows, epoch.bad.filtered, epoch.digest.rows) == (6, 14, 14)
    assert epoch.bad.reasons == (("no eight or seven", 6), ("no seven", 2))
    ledger.close()


def died() -> None:
    raise RuntimeError("died between two sinks")


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_quarantine_that_is_behind_gets_the_bad_rows_of_the_epoch_and_not_those_of_the_program(
    stream: FileStream, pg: PostgresTarget, after: int
) -> None:
    store = MemoryStore()

    def wrapped(**expect: str) -> Any:
        memory = MemorySink(id="memory:all", store=store)
        apart = aside(
            pg, tuning=PostgresTuning(lock_timeout=20.0)
        )  # waits otherwise than the other table, so it has its own transaction
        return exactly_once(pg.sink(), memory, quality=Quality(expect=expect or EXPECT, quarantine=apart))

    stream.receive(range(10)).run(wrapped())
    faults.arm(Point.COMMIT_AFTER, died, after)
    assert "died between" in stream.receive(range(10, 20)).fail(wrapped())
    faults.disarm()
    assert bad(pg) == broken(range(10))
    # Who starts again expects less: what epoch 2 is, is decided.
    stream.receive(range(20, 30)).run(wrapped(**{"no seven": "id % 10 <> 7"}))
    assert pg.ids() == sorted([*good(range(20)), *(number for number in range(20, 30) if number % 10 != 7)])
    assert bad(pg) == [*broken(range(20)), (27, ["no seven"])]
    held = sorted(row["id"] for row in MemorySink(id="memory:all", store=store).rows())
    assert held == pg.ids()


def test_without_a_quarantine_a_bad_row_stops_the_query_and_the_printed_way_leads_on(
    stream: FileStream, pg: PostgresTarget
) -> None:
    stream.receive(range(7)).run(exactly_once(pg.sink(), quality=Quality(expect=EXPECT)))
    seen = stream.receive(range(10, 20)).fail(exactly_once(pg.sink(), quality=Quality(expect=EXPECT)))
    assert "[ONCE-E522] 3 of the 10 rows of epoch 2" in seen, seen[:2000]
    assert "no eight or seven 3, no seven 1" in seen
    assert "quality=Quality(..., quarantine=sink)" in seen
    assert pg.ids() == [*range(7)]
    stream.run(exactly_once(pg.sink(), quality=Quality(expect=EXPECT, quarantine=aside(pg))))
    assert pg.ids() == [*range(7), *good(range(10, 20))]
    assert bad(pg) == broken(range(10, 20))


@pytest.mark.slow
def test_more_bad_rows_than_may_be_stop_the_query_until_an_operator_lets_them_through(
    stream: FileStream, pg: PostgresTarget
) -> None:
    def wrapped(most: float) -> Any:
        return exactly_once(pg.sink(), quality=Quality(expect=EXPECT, quarantine=aside(pg), max_bad=most))

    # Two batches: 100 bad rows are let through by any share, 102 are not.
    stream.receive(range(330)).run(wrapped(0.01))
    assert len(bad(pg)) == 99
    seen = stream.receive(range(340, 680)).fail(wrapped(0.01))
    assert "[ONCE-E522] 102 of the 340 rows of epoch 2" in seen, seen[:2000]
    assert "100 may be" in seen
    assert "max_bad=102" in seen
    assert len(bad(pg)) == 99
    stream.run(wrapped(102))
    assert bad(pg) == broken(range(330), range(340, 680))
    assert pg.ids() == good(range(330), range(340, 680))


# ---- one batch of ten rows under expectations of every kind


class Wards:
    """Five pipelines over one batch, each with two tables of its own."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.said: dict[str, str] = {}
        self.receipts: dict[str, list[int]] = {}

    def sink(self, name: str) -> PostgresSink:
        return PostgresSink(self.dsn, table=name)

    def aside(self, name: str) -> PostgresSink:
        return PostgresSink(self.dsn, table=f"{name}_bad")

    def says(self, statement: str) -> list[tuple[Any, ...]]:
        return PostgresTarget(self.dsn).says(statement)

    def ids(self, name: str) -> list[int]:
        return [number for (number,) in self.says(f"select id from {name} order by id")]

    def bad(self, name: str) -> list[dict[str, Any]]:
        """Rows that are set aside, by id."""
        found = [json.loads(row) for (row,) in self.says(f"select row from {name}_bad")]
        return sorted(found, key=lambda row: row["id"])


NAMES = {"rows": "id <> 1", "filtered": "id <> 2", "high": "id <> 3", "low": "id > 3", "bad": "id < 9"}
"""Called like things that are counted."""


@pytest.fixture(scope="module")
def wards(spark: Any, any_postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Wards:
    """What became of one batch, under each of five expectations."""
    made = Wards(any_postgres.database("quality_wards"))

    def quality(name: str, expect: dict[str, Any], **said: Any) -> Quality:
        return Quality(expect=expect, quarantine=made.aside(name), **said)

    nobody = lambda df: df.withColumn("customer", f.expr("if(id > 7, null, word)"))  # noqa: E731
    few = Output(made.sink("guarded"), name="few", where="10 / id >= 2", select=["id", "10 / id AS share"])
    wrapped = {
        "unknown": exactly_once(
            made.sink("unknown"),
            quality=quality("unknown", {"known": "customer <> 'nobody'"}),
            transform=nobody,
            name="unknown",
        ),
        "called": exactly_once(made.sink("called"), quality=quality("called", NAMES), name="called"),
        "valueless": exactly_once(
            made.sink("valueless"), quality=quality("valueless", EXPECT, keep_row=False), name="valueless"
        ),
        "guarded": exactly_once(
            MemorySink(id="memory:all"), few, quality=quality("guarded", {"not nought": "id > 0"}), name="guarded"
        ),
        "column": exactly_once(
            made.sink("column_bad_is"),
            quality=quality("column", EXPECT),
            transform=lambda df: df.withColumn("bad", f.col("id")),
            name="column",
        ),
    }
    stream = FileStream(spark, tmp_path_factory.mktemp("wards")).receive(range(10))
    made.said = each(stream, wrapped)
    made.receipts = {case: [receipt.rows for receipt in write.last_receipts] for case, write in wrapped.items()}
    return made


@pytest.mark.slow
def test_what_is_neither_true_nor_false_is_bad(wards: Wards) -> None:
    assert wards.said["unknown"] == ""
    assert wards.ids("unknown") == [*range(8)]
    assert wards.bad("unknown") == [{"id": number, "word": f"w{number}", "customer": None} for number in (8, 9)]


def test_an_expectation_may_be_called_like_anything_that_is_counted(wards: Wards) -> None:
    assert wards.said["called"] == ""
    assert wards.ids("called") == [4, 5, 6, 7, 8]
    assert wards.receipts["called"] == [5, 5]
    ledger = SqlLedger(wards.dsn)
    ledger.open()
    records = ledger.epochs("called")
    ledger.close()
    [reasons] = [record.epoch.bad.reasons for record in records if record.epoch.bad]
    assert dict(reasons) == {"rows": 1, "filtered": 1, "high": 1, "low": 4, "bad": 1}


def test_values_are_left_out_on_request(wards: Wards) -> None:
    assert wards.said["valueless"] == ""
    assert wards.says("select count(*), count(row), count(distinct hash) from valueless_bad") == [(3, 0, 3)]


def test_an_expectation_guards_what_an_output_computes(wards: Wards) -> None:
    assert wards.said["guarded"] == ""
    assert wards.ids("guarded") == [1, 2, 3, 4, 5]
    assert [row["id"] for row in wards.bad("guarded")] == [0]


def test_a_column_called_bad_is_a_column(wards: Wards) -> None:
    assert wards.said["column"] == ""
    assert wards.says("select bad from column_bad_is order by id") == [(number,) for number in range(7)]
    assert [row["id"] for row in wards.bad("column")] == [7, 8, 9]


# ---- killed


EXPECTED = "pmod(xxhash64(id, 20), 20) <> 3"
WORDLESS = "pmod(xxhash64(id, 20), 20) = 7"
DEATHS = [f"{Point.STAGE_AFTER}:killgroup:2"]
DEATHS += [f"{Point.COMMIT_SENT}:killgroup:{3 + sink}" for sink in (1, 2, 3)]
DEATHS += [f"{Point.COMMIT_AFTER}:killgroup:4", f"{Point.COMMIT_AFTER}:killgroup:5", f"{Point.RECORD_BEFORE}:killgroup"]


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.kafka
def test_no_kill_loses_or_doubles_a_row_good_or_bad(
    any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers, spark: Any
) -> None:
    topic = any_kafka.topic("killed")
    several = Several(tmp_path, any_postgres.database("quality"), f"{any_kafka.servers} {topic}")
    whole, events_, table = several.scenes
    PostgresTarget(any_postgres.database("quality")).says(
        "create table arrivals (id bigint, word text not null, _epoch bigint)"
    )
    job = several.job(expect=EXPECTED, wordless=WORDLESS)
    for number, fault in enumerate(DEATHS):
        several.inbox.fill(2 * number + 3)
        assert was_killed(warm_drivers.start(job, fault=fault)), fault
        counts = [scene.newest() for scene in (whole, table, events_)]
        assert counts == sorted(counts, reverse=True), f"{fault}: {counts}"
        assert counts[0] - counts[-1] <= 1, f"{fault}: {counts}"
    warm_drivers.finish(job)
    rows = spark.range(several.inbox.files * ROWS)
    met = {row["id"] for row in rows.where(f"{EXPECTED} and not {WORDLESS}").collect()}
    wordless = {row["id"] for row in rows.where(WORDLESS).collect()}
    assert len(wordless) / rows.count() > 0.02
    assert 0.8 < len(met) / rows.count() < 1
    assert whole.rows() == [(number, f"w{number}") for number in sorted(met)]
    assert DeltaTarget(table.target).ids() == sorted(one for one in met if one % 2 == 0)
    told = [json.loads(value) for value in committed(any_kafka.servers, topic)]
    kept = {one["row"]["id"]: [why["rule"] for why in one["reasons"]] for one in told}
    assert sorted(one["row"]["id"] for one in told) == sorted({*range(several.inbox.files * ROWS)} - met)
    assert {number for number, why in kept.items() if why == ["word: not null"]} == wordless
    chains = [[marker.epoch.chain for marker in scene.markers()] for scene in several.scenes]
    assert chains[0] == chains[1] == chains[2]


WRONG = {
    "an aggregate": "sum(id) > 3",
    "chance": "rand() < 0.5",
    "a number": "id",
    "a text": "word",
    "a column that is not there": "amount > 3",
    "a subquery": "id < (SELECT max(id) FROM range(3))",
    "no SQL": "id >",
}


def test_what_is_no_condition_on_a_row_is_refused_before_anything_is_written(
    stream: FileStream, pg: PostgresTarget
) -> None:
    rows = {case: MemorySink(id=f"memory:{case}") for case in WRONG}

    def wrapped(case: str) -> Any:
        quality = Quality(expect={"fine": "id >= 0", "it": WRONG[case]}, quarantine=aside(pg))
        return exactly_once(rows[case], quality=quality, name=case)

    said = each(stream.receive(range(10)), {case: wrapped(case) for case in WRONG})
    wanted = {case: f'[ONCE-E121] Expectation "it" of "{case}"' for case in WRONG}
    assert {case: one for case, one in said.items() if wanted[case] not in one} == {}
    assert {case: sink.rows() for case, sink in rows.items() if sink.rows()} == {}
    assert pg.says("select to_regclass('orders_bad')") == [(None,)]


@pytest.mark.slow
def test_an_expectation_that_raises_stops_the_query_and_writes_nothing(stream: FileStream, pg: PostgresTarget) -> None:
    quality = Quality(expect={"number": "CAST(word AS INT) > 3"}, quarantine=aside(pg))
    seen = stream.receive(range(10)).fail(exactly_once(pg.sink(), quality=quality))
    assert "CAST_INVALID_INPUT" in seen
    assert pg.says("select to_regclass('orders')") == [(None,)] or pg.ids() == []
    gentle = Quality(expect={"number": "try_cast(substr(word, 2) AS INT) > 3"}, quarantine=aside(pg))
    stream.run(exactly_once(pg.sink(), quality=gentle))
    assert pg.ids() == [*range(4, 10)]


@pytest.mark.slow
def test_each_expectation_is_computed_once_for_a_row(stream: FileStream, pg: PostgresTarget, tmp_path: Any) -> None:
    seen = tmp_path / "seen"

    def noted(number):  # a hint here would be Arrow's to read
        with seen.open("a") as file:
            file.write(f"{number}\n")
        return number < 7

    note = f.udf(noted, "boolean", useArrow=False)
    outputs = [Output(MemorySink(id=f"memory:{name}"), name=name, where="id > 2") for name in ("one", "two")]
    quality = Quality(expect={"noted": note("id"), "small": "id < 9"}, quarantine=aside(pg))
    stream.receive(range(10)).run(exactly_once(pg.sink(), *outputs, quality=quality))
    assert sorted(map(int, seen.read_text().split())) == [*range(10)]
    assert pg.ids() == [*range(7)]


SETS_ASIDE = "quarantine such rows: exactly_once(..., quality=Quality(expect=..., quarantine=sink))"
REFUSED = {
    "E503": ("word varchar(2)", {}, "id", "length(word) <= 2"),
    "E504": ("word text", {"key": "id"}, "if(id = 7, null, id) as id", "id IS NOT NULL"),
}


@pytest.mark.slow
@pytest.mark.parametrize("code", REFUSED)
def test_a_row_that_postgres_refuses_can_be_set_aside_as_its_message_says(
    stream: FileStream, pg: PostgresTarget, code: str
) -> None:
    column, options, id_, expected = REFUSED[code]
    keyed = ", primary key (id)" if options else ""
    pg.says(f"create table orders (id bigint, {column}, _epoch bigint{keyed})")

    def shape(df: DataFrame) -> DataFrame:
        return df.selectExpr(id_, "word")

    said = stream.receive(range(5, 15)).fail(exactly_once(pg.sink(**options)), shape=shape)
    assert f"[ONCE-{code}]" in said
    assert SETS_ASIDE in said
    quality = Quality(expect={"fits": expected}, quarantine=aside(pg))
    stream.run(exactly_once(pg.sink(**options), quality=quality), shape=shape)
    held, kept = len(pg.ids()), len(bad(pg))
    assert (held, kept) == ((5, 5) if code == "E503" else (9, 1))


@pytest.mark.slow
@pytest.mark.kafka
def test_a_row_that_brokers_refuse_can_be_set_aside_as_its_message_says(
    stream: FileStream, pg: PostgresTarget, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("small", config={"max.message.bytes": "2000"})

    def shape(df: DataFrame) -> DataFrame:
        return df.selectExpr("id", "repeat(word, if(id = 3, 4000, 1)) AS value")

    said = stream.receive(range(5)).fail(exactly_once(KafkaSink(any_kafka.servers, topic)), shape=shape)
    assert "[ONCE-E517]" in said
    assert SETS_ASIDE in said
    quality = Quality(expect={"fits": "length(value) < 1900"}, quarantine=aside(pg))
    stream.run(exactly_once(KafkaSink(any_kafka.servers, topic), quality=quality), shape=shape)
    assert sorted(committed(any_kafka.servers, topic)) == ["w0", "w1", "w2", "w4"]
    assert [number for number, _ in bad(pg)] == [3]


@pytest.mark.kafka
def test_a_topic_gets_the_whole_of_a_bad_row_as_json(
    stream: FileStream, pg: PostgresTarget, any_kafka: KafkaAddress
) -> None:
    topic = any_kafka.topic("bad")
    expect = {**EXPECT, "as a Column": f.col("id") < 9}
    quality = Quality(expect=expect, quarantine=KafkaSink(any_kafka.servers, topic))
    stream.receive(range(10)).run(exactly_once(pg.sink(), quality=quality))
    told = [json.loads(value) for value in committed(any_kafka.servers, topic)]
    assert sorted(one["row"]["id"] for one in told) == [7, 8, 9]
    assert {one["row"]["id"]: [why["rule"] for why in one["reasons"]] for one in told} == {
        **dict(broken(range(10))),
        9: ["no eight or seven", "as a Column"],
    }
    assert pg.ids() == [*range(7)]


@pytest.mark.slow
def test_a_replayed_batch_of_a_stateful_query_is_proven_with_its_bad_rows(
    stream: FileStream, pg: PostgresTarget
) -> None:
    def counted(df: Any) -> Any:
        return df.dropDuplicates(["id"])

    quality = Quality(expect=EXPECT, quarantine=aside(pg))
    stream.receive(range(10), range(5, 15)).run(exactly_once(pg.sink(), quality=quality), shape=counted)
    stream.remove("commits", 1)
    stream.receive(range(15, 20)).run(exactly_once(pg.sink(), quality=quality), shape=counted)
    assert pg.ids() == good(range(20))
    assert bad(pg) == broken(range(20))
