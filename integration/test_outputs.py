"""Outputs: one query, one plan, one epoch; some sinks get columns of their own, of the rows that they want."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from integration.cases import each
from integration.processes import Drivers, was_killed
from integration.several import Several
from integration.stage import ROWS
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.testing.objects import ExamplePoint, ExamplePointUDT

from onceonly import Output, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaTuning
from onceonly_sinks.memory import MemorySink, MemoryStore
from onceonly_sinks.postgres import PostgresTuning

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

EVEN = "id % 2 = 0"


def even(delta: DeltaTarget, where: str | Column = EVEN) -> Output:
    return Output(delta.sink(), name="even", where=where, select=["id AS key", "upper(word) AS loud"])


def in_delta(delta: DeltaTarget) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in delta.table.to_pyarrow_table().to_pylist())


def loud(numbers: range) -> list[tuple[int, str]]:
    return [(number, f"W{number}") for number in numbers]


def ledger_of(pg: PostgresTarget) -> closing[SqlLedger]:
    ledger = SqlLedger(pg.dsn)
    ledger.open()
    return closing(ledger)


def test_each_sink_holds_its_output_and_the_audit_says_so(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget, spark: Any
) -> None:
    store = MemoryStore()

    def memory() -> MemorySink:
        return MemorySink(id="memory:few", store=store)

    wrapped = exactly_once(pg.sink(), even(delta), Output(memory(), name="few", where=f.col("id") < 3))
    stream.receive(range(10), range(10, 25), range(25, 25)).run(wrapped)
    assert pg.ids() == [*range(25)]
    assert in_delta(delta) == loud(range(0, 25, 2))
    assert [receipt.rows for receipt in wrapped.last_receipts] == [0, 0, 0]
    with ledger_of(pg) as ledger:
        judged = [pg.sink(), delta.sink(), memory()]
        found = audit(ledger, "orders", judged, spark=spark)
        for sink in judged:
            sink.close()
        told = [record.epoch for record in ledger.epochs("orders")]
    said = [[(one.name, one.sinks, one.digest.rows, one.filtered) for one in epoch.outputs] for epoch in told]
    [table] = {sink for output in told[0].outputs for sink in output.sinks if sink.startswith("delta")}
    assert said[0] == [("even", (table,), 5, 5), ("few", ("memory:few",), 3, 7)]
    assert said[1] == [("even", (table,), 8, 7), ("few", ("memory:few",), 0, 15)]
    assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]


def died() -> None:
    raise RuntimeError("died between two sinks")


def test_a_sink_that_is_behind_gets_its_output_also_from_a_program_that_wants_another(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    stream.receive(range(10)).run(exactly_once(pg.sink(), even(delta)))
    faults.arm(Point.COMMIT_AFTER, died)
    assert "died between" in stream.receive(range(10, 20)).fail(exactly_once(pg.sink(), even(delta)))
    faults.disarm()
    assert in_delta(delta) == loud(range(0, 10, 2))
    stream.receive(range(20, 30)).run(exactly_once(pg.sink(), even(delta, "id % 2 = 1")))
    assert pg.ids() == [*range(30)]
    assert in_delta(delta) == sorted(loud(range(0, 20, 2)) + loud(range(21, 30, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("via", ["executors", pytest.param("driver", marks=pytest.mark.slow)])
def test_an_output_is_written_by_executors_and_by_the_driver(stream: FileStream, pg: PostgresTarget, via: str) -> None:
    few = Output(pg.sink(tuning=PostgresTuning(load=via)), name="few", where="id < 13", select=["word", "id"])
    stream.receive(range(10), range(10, 20)).run(exactly_once(MemorySink(id="memory:orders"), few))
    assert pg.says("select id, word from orders order by id") == [(number, f"w{number}") for number in range(13)]


@pytest.mark.slow
def test_spark_commits_an_output_into_a_delta_table(stream: FileStream, delta: DeltaTarget) -> None:
    few = Output(delta.sink(tuning=DeltaTuning(committer="spark")), name="few", where=f.col("id") < 13)
    stream.receive(range(10), range(10, 20)).run(exactly_once(MemorySink(id="memory:orders"), few))
    assert in_delta(delta) == [(number, f"w{number}") for number in range(13)]


def test_each_row_is_computed_once_whatever_number_of_outputs_it_is_in(stream: FileStream, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def noted(number):  # a hint here would be Arrow's to read
        with seen.open("a") as file:
            file.write(f"{number}\n")
        return number

    note = f.udf(noted, "bigint", useArrow=False)
    outputs = [
        Output(MemorySink(id=f"memory:{name}"), name=name, where=where, select=["id", "noted"])
        for name, where in (("low", "noted < 5"), ("high", "noted >= 5"), ("all", None))
    ]
    wrapped = exactly_once(
        MemorySink(id="memory:rows"), *outputs, transform=lambda df: df.withColumn("noted", note("id"))
    )
    stream.receive(range(10)).run(wrapped)
    assert sorted(map(int, seen.read_text().split())) == [*range(10)]
    assert [receipt.rows for receipt in wrapped.last_receipts] == [10, 5, 5, 10]


@pytest.mark.slow
def test_a_replayed_batch_of_a_stateful_query_is_proven_with_its_outputs(
    stream: FileStream, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    def counted(df: DataFrame) -> DataFrame:
        return df.dropDuplicates(["id"])

    stream.receive(range(10), range(5, 15)).run(exactly_once(pg.sink(), even(delta)), shape=counted)
    stream.remove("commits", 1)
    stream.receive(range(15, 20)).run(exactly_once(pg.sink(), even(delta)), shape=counted)
    assert pg.ids() == [*range(20)]
    assert in_delta(delta) == loud(range(0, 20, 2))


WRONG = {
    "an aggregate": {"select": ["sum(id) AS total"]},
    "a window": {"select": ["row_number() OVER (ORDER BY id) AS place"]},
    "a subquery": {"select": ["(SELECT max(id) FROM range(3)) AS most"]},
    "chance": {"where": "rand() < 0.5"},
    "no condition": {"where": "id"},
    "a column that is not there": {"where": "amount > 3"},
    "rows out of rows": {"select": ["explode(array(id, id)) AS id"]},
    "a column without a name": {"select": ["id", "id + 1"]},
    "two columns of a name": {"select": ["id", "word AS ID"]},
}


def test_what_cannot_be_made_of_single_rows_is_refused_before_anything_is_written(
    stream: FileStream, pg: PostgresTarget
) -> None:
    rows = {case: MemorySink(id=f"memory:{case}") for case in WRONG}
    wrapped = {
        case: exactly_once(rows[case], Output(pg.sink(), name="picked", **wrong), name=case)
        for case, wrong in WRONG.items()
    }
    said = each(stream.receive(range(10)), wrapped)
    assert {case: one for case, one in said.items() if "[ONCE-E121]" not in one} == {}
    assert {case: sink.rows() for case, sink in rows.items() if sink.rows()} == {}
    assert pg.says("select to_regclass('orders')") == [(None,)]
    # The remedy that is printed: what is wanted is computed in transform=.
    remedied = exactly_once(
        MemorySink(id="memory:orders"),
        Output(pg.sink(), name="picked", where="odd", select=["id"]),
        transform=lambda df: df.withColumn("odd", f.col("id") % 2 == 1),
    )
    stream.run(remedied)
    assert pg.ids() == [*range(1, 10, 2)]


def a_point() -> Column:
    return f.udf(lambda: ExamplePoint(1.0, 2.0), ExamplePointUDT(), useArrow=False)()


STRANGE = {
    "variant": lambda: f.expr("parse_json('[1]')"),
    "interval": lambda: f.expr("make_ym_interval(1)"),
    "user-defined": a_point,
}


@pytest.mark.slow
def test_a_type_that_a_sink_does_not_take_is_refused_in_an_output_as_in_a_row(
    stream: FileStream, pg: PostgresTarget
) -> None:
    def wrapped(case: str, given: Any) -> Any:
        made = STRANGE[case]
        before = lambda df: df.withColumn("it", made())  # noqa: E731
        return exactly_once(given, MemorySink(id=f"memory:{given}"), transform=before, name=f"{case} {type(given)}")

    output = {case: wrapped(case, Output(pg.sink(), name="few", select=["id", "it"])) for case in STRANGE}
    row = {f"{case} in a row": wrapped(case, pg.sink()) for case in STRANGE}
    said = each(stream.receive(range(10)), output | row)
    codes = {case: one.partition("[ONCE-")[2][:4] for case, one in said.items()}
    assert {case: code for case, code in codes.items() if not code.startswith("E")} == {}, said
    assert {case: codes[case] for case in STRANGE} == {case: codes[f"{case} in a row"] for case in STRANGE}


def test_an_output_may_not_have_the_name_of_a_column(stream: FileStream, pg: PostgresTarget) -> None:
    names = ("word", "word_rows")
    said = each(
        stream.receive(range(10)), {name: exactly_once(Output(pg.sink(), name=name), name=name) for name in names}
    )
    assert "[ONCE-E120]" in said["word"]
    assert 'name="word_rows"' in said["word"]
    assert said["word_rows"] == ""
    assert pg.ids() == [*range(10)]


# ---- killed


DEATHS = [f"{Point.STAGE_AFTER}:killgroup:2"]
DEATHS += [f"{Point.COMMIT_SENT}:killgroup:{3 + sink}" for sink in (1, 2, 3)]
DEATHS += [f"{Point.COMMIT_AFTER}:killgroup:5", f"{Point.FETCH_AFTER}:killgroup", f"{Point.RECORD_BEFORE}:killgroup:2"]


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.kafka
def test_no_kill_between_outputs_loses_or_doubles_a_row(
    any_postgres: Any, any_kafka: Any, tmp_path: Path, warm_drivers: Drivers
) -> None:
    database, topic = any_postgres.database("outputs"), f"{any_kafka.servers} {any_kafka.topic('outputs')}"
    several = Several(tmp_path, database, topic)
    job = several.job(outputs=True)
    for number, fault in enumerate(DEATHS):
        several.inbox.fill(2 * number + 3)
        assert was_killed(warm_drivers.start(job, fault=fault)), fault
        counts = several.newest()
        assert counts == sorted(counts, reverse=True), f"{fault}: {counts}"
        assert counts[0] - counts[-1] <= 1, f"{fault}: {counts}"
    warm_drivers.finish(job)
    whole, events, table = several.scenes
    whole.holds_everything()
    events.holds_everything()
    held = DeltaTarget(table.target).table.to_pyarrow_table().to_pylist()
    wanted = [(number, f"W{number}") for number in range(0, several.inbox.files * ROWS, 2)]
    assert sorted((row["id"], row["loud"]) for row in held) == wanted
    chains = [[marker.epoch.chain for marker in scene.markers()] for scene in several.scenes]
    assert chains[0] == chains[1] == chains[2]
