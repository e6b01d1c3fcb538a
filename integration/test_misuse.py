"""Calls that look right and are not, in real queries: refused in words, before the rows in question are written."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.streams import FileStream
from integration.targets import PostgresTarget, events, ids
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from onceonly import ExactlyOnce, Storage, exactly_once
from onceonly.audit import Verdict, audit
from onceonly.machine.callback_rules import Holder
from onceonly.runtime.runs import Runs
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark

EVENS, ODDS = "id % 2 = 0", "id % 2 = 1"


# ---- two calls for one batch


@dataclass
class Calls:
    """What a callback was told that calls in every way that looks right, in a query of two batches.

    Attributes:
        sinks: by the name of what was tried.
        said: what each was refused with, by name and batch.
        ledger: of all pipelines.
    """

    sinks: dict[str, MemorySink]
    said: dict[tuple[str, int], str]
    ledger: SqlLedger


@pytest.fixture(scope="module")
def calls(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    place = tmp_path_factory.mktemp("calls")
    tried = ("parts", "swallowed", "same name", "own id", "two names", "fails once", "evens", "odds", "grouped")
    sinks = {name: MemorySink(f"memory:{name}") for name in tried}
    said: dict[tuple[str, int], str] = {}
    failures = iter([RuntimeError("for once"), None, None])

    def shaky(df: DataFrame) -> DataFrame:
        if failure := next(failures):
            raise failure
        return df

    def make(name: str, sink: str | None = None, **more: Any) -> ExactlyOnce:
        return exactly_once(sinks[sink or name], name=name, storage=Storage(ledger=place / "ledger.db"), **more)

    # Another object for the same store: one object in two places is what "two names" tries.
    twin = MemorySink(sinks["same name"].id, sinks["same name"].store)
    twins = make("same name"), exactly_once(twin, name="same name", storage=Storage(ledger=place / "ledger.db"))
    named = make("two names"), make("another name", "two names")
    parts, swallowed, own_id = make("parts"), make("swallowed"), make("own id")
    failing, grouped = make("fails once", transform=shaky), make("grouped")
    evens = make("evens", transform=lambda df: df.where(EVENS))
    odds = make("odds", transform=lambda df: df.where(ODDS))

    def tries(name: str, wrapped: ExactlyOnce, df: DataFrame, batch_id: int, offered: int | None = None) -> None:
        try:
            wrapped(df, batch_id if offered is None else offered)
        except Exception as refused:
            said[name, batch_id] = str(refused)

    def write(df: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            parts(df.where(EVENS), batch_id)
            tries("parts", parts, df.where(ODDS), batch_id)
            twins[0](df.where(EVENS), batch_id)
            tries("same name", twins[1], df.where(ODDS), batch_id)
            named[0](df.where(EVENS), batch_id)
            tries("two names", named[1], df.where(ODDS), batch_id)
            swallowed(df.where(EVENS), batch_id)
        tries("swallowed", swallowed, df.where(ODDS), batch_id)
        tries("own id", own_id, df, batch_id, offered=0)
        tries("fails once", failing, df, batch_id)
        if ("fails once", batch_id) in said:
            failing(df, batch_id)
        evens(df, batch_id)
        odds(df, batch_id)
        df.sparkSession.sparkContext.setJobGroup(f"batch {batch_id}", "a group of one's own")
        grouped(df, batch_id)

    FileStream(spark, place).receive(range(10), range(10, 20)).run(write)
    with closing(SqlLedger(str(place / "ledger.db"))) as ledger:
        ledger.open()
        yield Calls(sinks, said, ledger)


def test_a_second_call_for_a_batch_is_refused_and_says_how_to_write_it(calls: Calls) -> None:
    said = calls.said["parts", 0]
    assert "[ONCE-E123]" in said
    assert "Batch 0" in said
    assert "transform=" in said
    assert ids(calls.sinks["parts"]) == [0, 2, 4, 6, 8]


@pytest.mark.postgres
def test_no_restart_brings_the_rest_of_a_batch_and_rows_by_hand_leave_the_verdict(stream, pg, spark):
    wrapped = exactly_once(pg.sink())

    def in_parts(df, batch_id):
        wrapped(df.where(EVENS), batch_id)
        wrapped(df.where(ODDS), batch_id)

    said = stream.receive(range(10), range(10, 20)).fail(in_parts)
    assert "[ONCE-E123]" in said
    assert pg.ids() == [0, 2, 4, 6, 8], "what the first call wrote stands, and the query has stopped"
    assert "A restart skips it and never brings the other rows." in said
    assert "put the missing rows of batch 0 into the sink by hand" in said
    pg.says("insert into orders (id, word) select n, 'w' || n from generate_series(1, 9, 2) n")
    stream.run(exactly_once(pg.sink(), transform=lambda df: df))
    assert pg.ids() == [*range(20)]
    ledger, judged = SqlLedger(pg.dsn), pg.sink()
    with closing(ledger), closing(judged):
        ledger.open()
        found = audit(ledger, "orders", [judged], spark=spark)
    assert found.verdict is Verdict.EXACTLY_ONCE
    rows, code = found.findings
    assert (rows.code, rows.evidence) == ("A128", "5 rows besides those of the epochs")
    assert code.code == "A183"  # transform= was another one


def test_a_refused_second_call_that_is_swallowed_is_refused_again_at_the_next_batch(calls: Calls) -> None:
    found = {batch: said for (name, batch), said in calls.said.items() if name == "swallowed"}
    assert sorted(found) == [0, 1]
    assert [said for said in found.values() if "[ONCE-E123]" not in said] == []
    assert ids(calls.sinks["swallowed"]) == [0, 2, 4, 6, 8]


@pytest.mark.slow
def test_a_refused_second_call_that_is_swallowed_stops_the_query_at_its_next_batch(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))

    def careless(df, batch_id):
        wrapped(df.where(EVENS), batch_id)
        try:
            wrapped(df.where(ODDS), batch_id)
        except Exception:
            caught.append(batch_id)

    caught: list[int] = []
    assert "[ONCE-E123]" in stream.receive(range(10), range(10, 20)).fail(careless)
    assert caught == [0]
    assert ids(sink) == [0, 2, 4, 6, 8]


def test_a_call_may_be_repeated_that_has_failed(calls: Calls) -> None:
    assert {batch: said for (name, batch), said in calls.said.items() if name == "fails once"} == {0: "for once"}
    assert ids(calls.sinks["fails once"]) == list(range(20))


def test_two_wrappers_of_one_name_in_a_query_are_refused(calls: Calls) -> None:
    said = calls.said["same name", 0]
    assert "[ONCE-E103]" in said
    assert "another exactly_once()" in said
    assert ids(calls.sinks["same name"]) == [0, 2, 4, 6, 8]


def test_two_wrappers_with_names_and_sinks_of_their_own_share_a_query(calls: Calls) -> None:
    assert ids(calls.sinks["evens"]) == list(range(0, 20, 2))
    assert ids(calls.sinks["odds"]) == list(range(1, 20, 2))


def test_a_batch_id_of_ones_own_is_refused(calls: Calls) -> None:
    assert "[ONCE-E124]" in calls.said["own id", 1]
    assert ("own id", 0) not in calls.said
    assert ids(calls.sinks["own id"]) == list(range(10))


# ---- one object in two places


def test_one_sink_in_two_queries_is_refused_at_the_second_and_the_first_goes_on(spark, stream, sink, ledger):
    first = stream.receive(range(5)).start(
        exactly_once(sink, storage=Storage(ledger=ledger)), processingTime="100 milliseconds"
    )
    try:
        first.processAllAvailable()
        twin = FileStream(spark, stream.root / "twin", name="twin").receive(range(100, 105))
        said = twin.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
        stream.receive(range(5, 10))
        first.processAllAvailable()
    finally:
        first.stop()
    assert "[ONCE-E125]" in said
    assert '"orders"' in said
    assert ids(sink) == list(range(10))
    assert ledger.head("twin") is None


@pytest.mark.slow
def test_one_wrapper_in_two_queries_is_refused_at_the_second_and_the_first_goes_on(spark, stream, sink, ledger):
    shared = exactly_once(sink, storage=Storage(ledger=ledger))
    first = stream.receive(range(5)).start(shared, processingTime="100 milliseconds")
    try:
        first.processAllAvailable()
        twin = FileStream(spark, stream.root / "twin", name="twin").receive(range(100, 105))
        said = twin.fail(shared)
        stream.receive(range(5, 10))
        first.processAllAvailable()
    finally:
        first.stop()
    assert "[ONCE-E125]" in said
    assert ids(sink) == list(range(10))
    assert len(events(ledger, EventKind.OPENED)) == 1


def test_one_sink_under_two_names_in_a_query_is_refused(calls: Calls) -> None:
    assert "[ONCE-E125]" in calls.said["two names", 0]
    assert ids(calls.sinks["two names"]) == [0, 2, 4, 6, 8]


@pytest.mark.slow
def test_a_wrapper_and_a_sink_serve_again_once_their_query_has_ended(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
    stream.receive(range(5)).run(wrapped)
    stream.receive(range(5, 10)).run(wrapped)
    stream.receive(range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.receive(range(15, 20), range(20, 25)).run(wrapped)
    assert ids(sink) == list(range(25))


# ---- whose callback it is


def test_a_job_group_set_in_the_callback_does_not_make_each_batch_an_opening(calls: Calls) -> None:
    assert ids(calls.sinks["grouped"]) == list(range(20))
    opened = [event for event in calls.ledger.events("grouped") if event.kind is EventKind.OPENED]
    assert len(opened) == 1


def test_a_thread_that_outlives_its_query_touches_the_sink_no_more_once_the_next_run_has_come(
    stream, sink, ledger, monkeypatch
):
    asleep, wake, said = threading.Event(), threading.Event(), []
    entered: list[str] = []
    both = threading.Event()
    enter = Runs.enter

    def watched(self: Runs, holder: Holder, *given: Any, **more: Any) -> None:
        enter(self, holder, *given, **more)
        entered.append(holder.run_id)
        if len(set(entered)) == 2:
            both.set()

    monkeypatch.setattr(Runs, "enter", watched)

    def sleepy(df):
        if not wake.is_set():
            asleep.set()
            wake.wait(60)
        return df

    wrapped = exactly_once(sink, storage=Storage(ledger=ledger), transform=sleepy)

    def leaves_a_thread(df, batch_id):
        def work():
            try:
                wrapped(df, batch_id)
            except Exception as error:
                said.append(str(error))

        thread = InheritableThread(target=work)
        threads.append(thread)
        thread.start()
        asleep.wait(60)
        raise RuntimeError("patience ran out")

    threads: list[threading.Thread] = []
    stream.receive(range(5)).fail(leaves_a_thread)
    restarted = stream.receive(range(5, 10)).start(wrapped)
    assert both.wait(60)
    wake.set()
    threads[0].join(60)
    restarted.awaitTermination()
    assert ["[ONCE-E402]" in one for one in said] == [True]
    assert ids(sink) == list(range(10))


@pytest.mark.slow
def test_rows_of_the_users_own_session_are_written_by_each_run_and_by_each_pipeline(spark, tmp_path):
    def of_pandas(df):
        return spark.createDataFrame(df.toArrow())

    for name in ("first", "second"):
        stream = FileStream(spark, tmp_path / name, name)
        sink, ledger = MemorySink(f"memory:{name}"), str(tmp_path / f"{name}.db")
        for start in (0, 10):
            wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
            stream.receive(range(start, start + 10))
            stream.run(lambda df, batch_id, wrapped=wrapped: wrapped(of_pandas(df), batch_id))
        assert ids(sink) == list(range(20))


# ---- executors that run another Python


@pytest.mark.slow
@pytest.mark.postgres
def test_executors_whose_python_lacks_what_tasks_need_are_told_with_the_interpreter_and_the_way_on(
    spark: SparkSession, stream: FileStream, pg: PostgresTarget, tmp_path: Path
) -> None:
    bare, context = tmp_path / "bare", spark.sparkContext
    subprocess.run([getattr(sys, "_base_executable"), "-m", "venv", "--without-pip", str(bare)], check=True)  # noqa: B009
    known, seen = context.pythonExec, dict[str, str]()
    stream.receive(range(4))
    for python in (str(bare / "bin" / "python"), str(tmp_path / "nowhere")):
        context.pythonExec = python
        try:
            seen[python] = stream.fail(exactly_once(pg.sink(key="even")), shape=_counted, mode="update")
        finally:
            context.pythonExec = known
    for python, told in seen.items():
        assert f"[ONCE-E157] The Python of the executors, {python}, cannot run tasks" in told
        assert f"export PYSPARK_PYTHON={sys.executable}" in told
    assert (
        f"{bare}/bin/python cannot import pyarrow (No module named 'pyarrow'), onceonly"
        in seen[str(bare / "bin/python")]
    )
    assert "nowhere" in seen[str(tmp_path / "nowhere")].partition("it does not run a task: ")[2].splitlines()[0]
    stream.run(exactly_once(pg.sink(key="even")), shape=_counted, mode="update")
    assert pg.says("select even, count from orders order by even") == [(False, 2), (True, 2)]


def _counted(df: DataFrame) -> DataFrame:
    return df.selectExpr(f"{EVENS} AS even").groupBy("even").count()
