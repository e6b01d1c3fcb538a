"""What goes beside panes: rows that came too late, several sinks, upserts, and a pipeline that ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from integration.cases import each
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame

from onceonly import EventTime, exactly_once, faults
from onceonly.errors import ConfigurationError
from onceonly.errors.codes import CATALOGUE
from onceonly.faults import Point
from onceonly.windows import (
    AtCount,
    AtMark,
    AtWatermark,
    Count,
    Last,
    Max,
    Mean,
    Min,
    Sessions,
    Sliding,
    Sum,
    Tumbling,
    Windows,
    drain,
)
from onceonly_sinks.delta import DeltaTuning
from onceonly_sinks.kafka import KafkaSink, read_committed
from onceonly_sinks.postgres import PostgresSink

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
Event = tuple[str | None, int, float | None]
"""Team, value, seconds after noon."""


class Events(FileStream):
    """Events of teams, a file for each batch."""

    def read(self) -> DataFrame:
        columns = "team string, value bigint, at timestamp"
        return self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(self.inbox))

    def come(self, *batches: Iterable[Event]) -> Events:
        for events in batches:
            rows = list(events)
            times = [None if at is None else NOON + timedelta(seconds=at) for _, _, at in rows]
            stamps: Any = pa.timestamp("us", "UTC")
            columns = {"team": pa.array([team for team, _, _ in rows], pa.string()), "at": pa.array(times, stamps)}
            table = pa.table({**columns, "value": pa.array([value for _, value, _ in rows], pa.int64())})
            self.drop(table.select(["team", "value", "at"]))
        return self


@pytest.fixture
def events(spark: Any, tmp_path: Any) -> Events:
    return Events(spark, tmp_path, "scores")


def panes(**said: Any) -> Windows:
    given: dict[str, Any] = {
        "key": "team",
        "aggregates": {"total": Sum("value")},
        "time": "at",
        "window": Tumbling("1 minute"),
    }
    return Windows(**{**given, **said})


def scores(pg: PostgresTarget, columns: str = "team, total, timing", **said: Any) -> list[Any]:
    return pg.says(f"select {columns} from orders order by _epoch, team, seq")


TIME = EventTime("at", max_delay="0s")


def test_rows_that_come_after_their_window_was_closed_are_kept_whole(events: Events, pg: PostgresTarget) -> None:
    late = PostgresSink(pg.dsn, table="late")

    def write() -> Any:
        return exactly_once(pg.sink(), event_time=TIME, windows=panes(late_rows=late))

    events.come([("a", 1, 10), ("b", 2, 70)], [("a", 3, 20), ("a", 4, 75), ("b", 5, None)], [("c", 6, 200)]).run(
        write()
    )
    assert scores(pg) == [("a", 1, "ON_TIME"), ("a", 4, "ON_TIME"), ("b", 2, "ON_TIME")]
    found = pg.says("select team, value, at, window_start, window_end, horizon from late order by value")
    begin, end = NOON, NOON + timedelta(minutes=1)
    noted = NOON + timedelta(seconds=70)
    assert found == [
        ("a", 3, NOON + timedelta(seconds=20), begin, end, noted),
        ("b", 5, None, None, None, noted),
    ]


@pytest.mark.slow
def test_one_row_of_the_far_future_is_told_and_the_printed_condition_keeps_it_out(
    events: Events, pg: PostgresTarget, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    """Beside windows of the first query, whose time it moves for good, those of one that leaves it out."""
    far = 200 * 366 * 86_400.0
    events.come([("a", 1, 10)], [("a", 2, far)], [("a", 3, 90), ("a", 4, 95)], [("a", 5, 150)])
    events.run(exactly_once(pg.sink(), event_time=TIME, windows=panes()))
    told = [line for line in caplog.messages if "late" in line]
    assert scores(pg, "total") == [(1,)]
    assert [re.findall(r"W719\] Epoch (\d) .* dropped (.*?): in no window", line) for line in told] == [
        [("3", "all of its 2 rows")],
        [("4", "its only row")],
    ]
    condition = re.search(r'df\.where\("(.*?)"\)', CATALOGUE["W719"].remedy)
    assert condition is not None
    bounded = condition[1].replace("event_time", "at")
    again = Events(events.spark, tmp_path / "again", "bounded")
    again.inbox = events.inbox
    write = exactly_once(PostgresSink(pg.dsn, table="bounded"), event_time=TIME, windows=panes())
    again.run(write, shape=lambda df: df.where(bounded))
    assert pg.says("select total from bounded order by window_start") == [(1,), (7,)]


@pytest.mark.slow
def test_an_epoch_is_in_a_delta_table_and_its_state_in_postgres_whatever_dies_between(
    events: Events, pg: PostgresTarget, delta: DeltaTarget
) -> None:
    state = PostgresSink(pg.dsn, table="scores_state")

    def write() -> Any:
        numbered = delta.sink(tuning=DeltaTuning(epoch_column="_epoch"))
        return exactly_once(numbered, pg.sink(), event_time=TIME, windows=panes(state_sink=state))

    events.come([("a", 1, 10), ("b", 2, 20)]).run(write())
    for number, hit in enumerate((1, 2, 3), 1):
        events.come([("a", 10 * number, 60 * number + 1)])
        faults.arm(Point.COMMIT_AFTER, _crash, hit if hit < 3 else 1)
        assert "a crash" in events.fail(write())
        faults.disarm()
    events.come([("c", 0, 600)]).run(write())
    wanted = {("a", 1), ("b", 2), ("a", 10), ("a", 20), ("a", 30)}
    assert {(team, total) for team, total, _ in scores(pg)} == wanted
    named = ["_epoch", "team", "seq", "total"]
    assert sorted(delta.rows(*named)) == scores(pg, ", ".join(named))


def _crash() -> None:
    raise RuntimeError("a crash")


def test_sessions_that_merge_leave_nothing_behind_in_an_upserted_table(events: Events, pg: PostgresTarget) -> None:
    sink = pg.sink(key=("team", "window_start", "window_end"), delete_flag="deleted")
    sessions = panes(
        window=Sessions("1 minute"),
        trigger=AtWatermark(early=AtCount(1)),
        accumulation="retracting",
        results="upserts",
    )
    write = exactly_once(sink, event_time=EventTime("at", max_delay="1 hour"), windows=sessions)
    events.come([("a", 1, 0), ("a", 2, 100)], [("a", 4, 50)], [("a", 8, 400)]).run(write)
    found = pg.says("select team, total, window_start, window_end, pane from orders order by window_start")
    assert found == [
        ("a", 7, NOON, NOON + timedelta(seconds=160), 1),
        ("a", 8, NOON + timedelta(seconds=400), NOON + timedelta(seconds=460), 0),
    ]


@pytest.mark.slow
def test_discarding_results_are_added_up_by_a_function_of_the_users_each_once_whatever_dies_between(
    events: Events, pg: PostgresTarget
) -> None:
    pg.says("create table totals (team text primary key, total bigint not null)")
    state = PostgresSink(pg.dsn, table="totals_state")

    def add(cursor: Any, staged: Any, _: int) -> None:
        cursor.execute(
            f"INSERT INTO totals AS t SELECT team, sum(total) FROM {staged} GROUP BY team"
            " ON CONFLICT (team) DO UPDATE SET total = t.total + excluded.total"
        )

    def write() -> Any:
        early = AtWatermark(early=AtCount(1), late=AtCount(1))
        windows = panes(
            trigger=early, allowed_lateness="1 hour", accumulation="discarding", on_time="changed", state_sink=state
        )
        return exactly_once(PostgresSink(pg.dsn, table="totals", apply=add), event_time=TIME, windows=windows)

    deaths = ((Point.COMMIT_BEFORE, 1), (Point.COMMIT_AFTER, 1), (Point.COMMIT_BEFORE, 2))  # in between: one of the two
    for number, (point, hit) in enumerate(deaths, start=1):
        events.come([("a", number, 100 * number), ("a", 10, 5), ("b", 100, 70)])
        faults.arm(point, _crash, hit)
        assert "a crash" in events.fail(write())
        faults.disarm()
        events.run(write())
        assert pg.says("select * from totals order by team") == [
            ("a", sum(range(number + 1)) + 10 * number),
            ("b", 100 * number),
        ]


@pytest.mark.slow
def test_values_of_every_kind_over_windows_that_overlap(events: Events, pg: PostgresTarget) -> None:
    values = {"total": Sum("value"), "rows": Count(), "most": Max("value"), "mean": Mean("value * 2")}
    values |= {"least": Min("value"), "newest": Last("value", by="at")}
    sliding = panes(aggregates=values, window=Sliding("2 minutes", "1 minute"))
    write = exactly_once(pg.sink(), event_time=TIME, windows=sliding)
    events.come([("a", 1, 10), ("a", 4, 70), (None, 7, 70)], [("z", 0, 1000)]).run(write)
    found = scores(pg, "team, window_start, total, rows, most, mean, least, newest")
    minute = timedelta(minutes=1)
    assert found == [
        ("a", NOON - minute, 1, 1, 1, 2.0, 1, 1),
        ("a", NOON, 5, 2, 4, 5.0, 1, 4),
        ("a", NOON + minute, 4, 1, 4, 8.0, 4, 4),
        (None, NOON, 7, 1, 7, 14.0, 7, 7),
        (None, NOON + minute, 7, 1, 7, 14.0, 7, 7),
    ]


def test_a_last_run_closes_what_is_open_and_only_then_the_writer_can_be_retired(
    events: Events, pg: PostgresTarget
) -> None:
    from onceonly.errors import OnceOnlyError
    from onceonly.runtime import operator
    from onceonly_checkpoints.ledger.sql import SqlLedger
    from onceonly_checkpoints.model import Adoption, AdoptionKind

    write = exactly_once(pg.sink(), event_time=TIME, windows=panes())
    events.come([("a", 1, 10)]).run(write)
    ledger, sinks = SqlLedger(pg.dsn), exactly_once(pg.sink(), event_time=TIME, windows=panes()).arguments.sinks
    with pytest.raises(OnceOnlyError, match="1 window open") as refused:
        operator.retire(sinks, ledger, "scores", Adoption(AdoptionKind.RETIRE_WRITER))
    for one in (*sinks, ledger):
        one.close()
    assert refused.value.code == "E142"
    assert "EventTime(..., callback=drain)" in str(refused.value)
    events.come([])
    last = exactly_once(pg.sink(), event_time=EventTime("at", callback=drain), windows=panes())
    events.run(last)
    assert scores(pg, "team, total, timing, final") == [("a", 1, "ON_TIME", True)]
    assert pg.says("select count(*) from orders_state") == [(0,)]
    assert "E135" in events.come([("a", 2, 20)]).fail(last)


LACKING = {
    "no such column": ({"aggregates": {"total": Sum("velue")}}, "*", "E121"),
    "a sum of doubles": ({"aggregates": {"total": Sum("CAST(value AS DOUBLE)")}}, "*", "E144"),
    "a window": ({"aggregates": {"total": Sum("sum(value) OVER ()")}}, "*", "it looks at other rows as well"),
    "a mark that is no condition": (
        {"trigger": AtWatermark(early=AtMark("value"))},
        "*",
        "AtMark('value') is no condition",
    ),
    "a time that is a date": ({"time": "day"}, "*, DATE(at) AS day", "time='day' is date"),
    "a key that is a double": ({"key": "place"}, "*, CAST(value AS DOUBLE) AS place", "key='place' is double"),
}


def test_what_rows_do_not_have_is_refused_before_anything_is_written(events: Events, pg: PostgresTarget) -> None:
    def wrapped(case: str) -> Any:
        said, shape, _ = LACKING[case]
        before = lambda df: df.selectExpr(*shape.split(", "))  # noqa: E731
        return exactly_once(pg.sink(), event_time=TIME, windows=panes(**said), transform=before, name=case)

    said = each(events.come([("a", 1, 10)]), {case: wrapped(case) for case in LACKING})
    assert {case: one for case, one in said.items() if LACKING[case][2] not in one} == {}
    assert pg.says("select to_regclass('orders')") == [(None,)]


def test_a_late_row_whose_columns_are_called_as_those_beside_it_is_refused_with_another_name(
    events: Events, pg: PostgresTarget
) -> None:
    def write(name: str) -> Any:
        kept = panes(aggregates={"rows": Count()}, late_rows=PostgresSink(pg.dsn, table="late"))
        before = lambda df: df.withColumnRenamed("value", name)  # noqa: E731
        return exactly_once(pg.sink(), event_time=TIME, windows=kept, transform=before, name=f"scores {name}")

    said = each(events.come([("a", 1, 10)]), {name: write(name) for name in ("horizon", "horizon_")})
    assert "rows have a column horizon" in said["horizon"]
    assert said["horizon_"] == ""


@pytest.mark.slow
def test_windows_that_are_given_up_leave_nothing_and_the_query_goes_on(events: Events, pg: PostgresTarget) -> None:
    import json

    from typer.testing import CliRunner

    from onceonly.cli.app import app

    def said(*words: str) -> Any:
        return CliRunner().invoke(app, [*words, "--query", "scores", "--ledger", pg.dsn])

    write = exactly_once(pg.sink(), event_time=TIME, windows=panes())
    events.come([("a", 1, 10)], [("b", 2, 70)]).run(write)
    shown = json.loads(said("windows", "show", "-o", "json").stdout)
    assert [(one["key"], one["rows"], one["panes"]) for one in shown["windows"]] == [(["b"], 1, 0)]
    assert said("recover", "reset-windows", "--accept-loss", "--yes").exit_code == 0
    assert json.loads(said("windows", "show", "-o", "json").stdout)["counted"] == 0
    events.come([("b", 40, 80), ("c", 3, 90)], [("d", 0, 300)]).run(
        exactly_once(pg.sink(), event_time=TIME, windows=panes())
    )
    assert scores(pg, "team, total, timing, pane") == [
        ("a", 1, "ON_TIME", 0),
        ("b", 40, "ON_TIME", 0),
        ("c", 3, "ON_TIME", 0),
    ]
    assert said("windows", "show").exit_code == 0
    assert said("audit", "--fail-on", "error").exit_code == 0


def test_rows_of_results_are_logged_and_those_of_the_batch_say_how_large_the_next_one_will_be(
    events: Events, pg: PostgresTarget, caplog: pytest.LogCaptureFixture
) -> None:
    write = exactly_once(pg.sink(), event_time=TIME, windows=panes())
    seen: list[int] = []

    def once(df: DataFrame, batch_id: int) -> None:
        write(df, batch_id)
        current = write._epochs.openings._current
        seen.append(current.past.rows if current and current.past else -1)

    caplog.set_level("INFO", logger="onceonly.api.write_epoch")
    events.come([("a", value, 10) for value in range(50)], [("b", 2, 70)]).run(once)
    assert seen == [50, 1]
    committed = [record.getMessage() for record in caplog.records if record.name == "onceonly.api.write_epoch"]
    assert [re.findall(r": (\d+ rows)", one) for one in committed] == [["0 rows"], ["1 rows"]]


@pytest.mark.slow
def test_a_plan_that_keeps_state_of_its_own_is_refused_and_without_it_the_query_goes_on(
    events: Events, pg: PostgresTarget
) -> None:
    write = exactly_once(pg.sink(), event_time="ingest", windows=panes(time="ingest"))

    def stateful(df: DataFrame) -> DataFrame:
        return df.withWatermark("at", "1 minute").dropDuplicates(["team", "at"])

    assert "ONCE-E141" in events.come([("a", 1, 10)]).fail(write, shape=stateful)
    assert pg.says("select to_regclass('orders')") == [(None,)]
    events.lose_checkpoint()
    events.run(exactly_once(pg.sink(), event_time=EventTime("at", callback=drain), windows=panes()))
    assert scores(pg) == [("a", 1, "ON_TIME")]


@pytest.mark.slow
@pytest.mark.kafka
def test_results_that_are_called_as_the_parts_of_a_record_go_into_a_topic_and_others_are_refused(
    events: Events, pg: PostgresTarget, any_kafka: Any
) -> None:
    topic = any_kafka.topic("results")
    state = PostgresSink(pg.dsn, table="scores_state")

    def write(name: str, said: Last | Sum) -> Any:
        values = {name: said, "total": Sum("value")}
        windows = panes(key="key", aggregates=values, state_sink=state)
        sink = KafkaSink(any_kafka.servers, topic=topic)
        return exactly_once(
            sink,
            event_time=EventTime("at", callback=drain),
            windows=windows,
            transform=lambda df: df.withColumn("key", df.team),
        )

    last = Last("team", by="at")
    events.come([("a", 1, 10), ("b", 2, 20)])
    with pytest.raises(ConfigurationError, match="window results have no column value"):
        write("said", last)
    assert "column value of window results is bigint" in events.fail(write("value", Sum("value")))
    events.lose_checkpoint()
    events.run(write("value", last))
    options = {"kafka.bootstrap.servers": any_kafka.servers, "subscribe": topic, "startingOffsets": "earliest"}
    committed = read_committed(events.spark.read.format("kafka").options(**options)).load()
    found = committed.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    assert sorted(map(tuple, found)) == [("a", "a"), ("b", "b")]
