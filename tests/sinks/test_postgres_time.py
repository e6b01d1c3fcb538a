"""What a Postgres table is complete through, for readers in Python and in SQL, beside the rows in one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.reading.writing import Writer

from onceonly.event_time import TimeReader, TimeWindow
from onceonly.machine.writer_progress import WriterSet
from onceonly_checkpoints.epoch_time import WriterProgress
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

BOTH = WriterSet(("web", "app"), 60)
WINDOW = "SELECT lower, upper, closed, without FROM onceonly.time_window WHERE target = 'clicks'::regclass"


@pytest.fixture
def made(dsn: str) -> Iterator[Callable[..., Writer]]:
    with ExitStack() as stack:

        def make(name: str = "web", writers: WriterSet | None = None, **options: Any) -> Writer:
            sink = PostgresSink(dsn, "clicks")
            stack.callback(sink.close)
            return Writer(name, sink, writers, **options)

        yield make


def sql(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def read(dsn: str, name: str = "web") -> TimeWindow:
    with TimeReader(name, PostgresSink(dsn, "clicks")) as reader:
        return reader.time_window()


def test_sql_and_python_are_told_the_same_of_one_writer(dsn: str, made: Callable[..., Writer]) -> None:
    web = made()
    web.write(3, 9, noted=7, closed_until=5)
    web.write(11, 4, noted=6)
    found = read(dsn)
    assert (found.lower, found.upper, found.closed) == (7, 11, None)
    assert sql(dsn, WINDOW) == [(7, 11, None, [])]
    columns = "epoch, target::text, complete_until, late_rows, earliest, latest"
    epochs = sql(dsn, f"SELECT {columns} FROM onceonly.epoch_time ORDER BY epoch")
    assert epochs == [(1, "clicks", 7, 0, 3, 9), (2, "clicks", 7, 1, 4, 11)]


def test_sql_and_python_are_told_the_same_of_two_writers_whatever_happens_to_them(
    dsn: str, made: Callable[..., Writer]
) -> None:
    web, app = made("web", BOTH), made("app", BOTH)

    def told(*steps: object) -> tuple[Any, ...]:
        found = read(dsn)
        assert sql(dsn, WINDOW) == [(found.lower, found.upper, found.closed, list(found.without))]
        return found.lower, found.upper, found.without

    assert told(web.write(100, noted=100)) == (None, 100, ())
    assert told(app.write(70, noted=70, sees=[web])) == (70, 100, ())
    assert told(web.write(130, noted=130, ingest=30, sees=[app])) == (70, 130, ())
    assert told(web.write(noted=130, ingest=61, sees=[app])) == (130, 130, ("app",))
    assert told(app.write(90, noted=90, ingest=70, sees=[web])) == (130, 130, ("app",))
    assert told(app.write(150, noted=150, ingest=90, sees=[web], closed_until=50)) == (130, 150, ())
    late = made("late", WriterSet(timeout=60))
    assert told(late.write(20, noted=20, ingest=95, sees=[web])) == (130, 150, ("late",))


def cut_off(dsn: str, writer: Writer, after: int) -> None:
    """Take the newest epochs of a writer out of our tables, as a restore of them does."""
    with psycopg.connect(dsn) as connection:
        names = {"name": writer.name, "after": after}
        connection.execute("DELETE FROM onceonly.epoch WHERE pipeline = %(name)s AND epoch > %(after)s", names)
        connection.execute(
            """
            UPDATE onceonly.head h SET epoch = e.epoch, chain = e.chain FROM onceonly.epoch e
            WHERE h.pipeline = %(name)s AND e.pipeline = h.pipeline AND e.epoch = %(after)s
            """,
            names,
        )
    del writer.epochs[after:]


def test_what_was_concluded_from_a_turn_that_is_over_does_not_count_in_sql(
    dsn: str, made: Callable[..., Writer]
) -> None:
    web, app = made("web", BOTH), made("app", BOTH)
    web.write(10, noted=10)
    app.write(90, noted=90, sees=[web])
    web.write(70, noted=70, sees=[app])
    web.write(80, noted=80, sees=[app])
    app.write(95, noted=95, sees=[web])
    assert sql(dsn, WINDOW)[0][0] == 80
    cut_off(dsn, web, 1)
    # Epoch 2 of turn 1 is newer than epoch 3 of turn 0, from which app has concluded.
    first, seen = web.epochs[0].time, app.newest
    assert first is not None
    assert seen is not None
    own = WriterProgress("web", 2, 12, 5, resets=1)
    web.commit(
        (),
        replace(
            first,
            complete_until=12,
            dataset_complete_until=12,
            batch_timestamp_ms=5,
            resets=1,
            writers=(seen.mark, own),
        ),
    )
    found = read(dsn)
    assert (found.lower, found.lost, found.at[1].resets) == (12, (), 1)
    assert sql(dsn, WINDOW) == [(12, 95, None, [])]


def test_a_table_that_somebody_else_was_put_back_in_is_told_in_sql_as_in_python(
    dsn: str, made: Callable[..., Writer]
) -> None:
    web, app = made("web", BOTH), made("app", BOTH)
    web.write(10, noted=10)
    app.write(90, noted=90, sees=[web])
    web.write(15, noted=15, sees=[app])
    web.write(80, noted=80, sees=[app])
    app.write(95, noted=95, sees=[web])
    cut_off(dsn, web, 2)
    found = read(dsn)
    assert (found.lower, found.lost) == (15, ("web",))
    assert sql(dsn, WINDOW)[0][0] == 15


def test_a_table_that_two_datasets_share_is_complete_through_what_both_are(
    dsn: str, made: Callable[..., Writer]
) -> None:
    made("web").write(5, noted=5, closed_until=2)
    made("app").write(9, noted=9, closed_until=3)
    assert (read(dsn, "web").lower, read(dsn, "app").lower) == (5, 9)
    assert sql(dsn, WINDOW) == [(5, 9, 2, [])]
    made("new").write(noted=None)
    assert sql(dsn, WINDOW) == [(None, 9, None, [])]


def test_rows_and_window_are_one_snapshot(dsn: str, made: Callable[..., Writer]) -> None:
    at = {"table": lambda times: pa.table({"at": pa.array([1000 * time for time in times], pa.timestamp("ms", "UTC"))})}
    web = made(unit="ms", **at)
    web.write(1, 2, noted=2_000)
    rows = """
        SELECT count(*) FROM clicks
        WHERE at < onceonly.at((SELECT lower FROM onceonly.time_window WHERE target = 'clicks'::regclass))
    """
    assert sql(dsn, rows) == [(1,)]
    with psycopg.connect(dsn) as reading:
        reading.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        before = reading.execute(WINDOW).fetchall()
        web.write(3, noted=4_000)
        assert reading.execute(WINDOW).fetchall() == before
        assert reading.execute(rows.encode()).fetchall() == [(1,)]
    assert sql(dsn, rows) == [(3,)]


def test_a_window_in_sql_is_open_then_complete_then_closed(dsn: str, made: Callable[..., Writer]) -> None:
    web = made(unit="ms")

    def status(until: str) -> str:
        return str(sql(dsn, f"SELECT onceonly.window_status('clicks', '{until}')")[0][0])

    web.write(1, noted=60_000, closed_until=30_000)
    said = [status(f"1970-01-01 {clock}+00") for clock in ("00:00:30", "00:00:30.0001", "00:01", "00:01:00.000001")]
    assert said == ["closed", "complete", "complete", "open"]
    made("heights").write(7, noted=7)
    assert status("1970-01-01 00:01+00") == "complete"
    web.write(2, noted=2**63 - 1, closed_until=2**63 - 1 - 60_000)  # the end of time, and a minute less
    assert status("9999-12-31 00:00+00") == "closed"
    made("late", WriterSet(timeout=60), unit="ms").write(20, noted=20, sees=[web])
    assert status("1970-01-01 00:01+00") == "open"  # one of its writers was left out, as `time wait` says
    year_one = sql(dsn, "SELECT (onceonly.at(-62135596800000) AT TIME ZONE 'UTC')::text")
    far = [sql(dsn, f"SELECT onceonly.at({number})::text") for number in (2**63 - 1, 2**63 - 60_001, 1 - 2**63)]
    assert [year_one, *far] == [[("0001-01-01 00:00:00",)], [("infinity",)], [("infinity",)], [("-infinity",)]]


def test_a_table_without_epochs_that_say_something_of_time_has_no_window(dsn: str, made: Callable[..., Writer]) -> None:
    web = made()
    web.commit((1,), None)
    assert sql(dsn, WINDOW) == sql(dsn, "SELECT 1 FROM onceonly.epoch_time") == []
    assert sql(dsn, "SELECT onceonly.window_status('clicks', now())") == [("open",)]
    assert read(dsn) == TimeWindow(None, None)


def test_a_table_that_was_made_anew_is_complete_through_nothing(dsn: str, made: Callable[..., Writer]) -> None:
    made().write(5, noted=5)
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE clicks RENAME TO older")
        connection.execute("CREATE TABLE clicks (at bigint)")
    assert (read(dsn).lower, read(dsn).lost) == (None, ("web",))
    assert sql(dsn, WINDOW) == []
