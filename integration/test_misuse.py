"""Calls that look right and are not, in real queries: refused in words, before the rows in question are written."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from integration.streams import FileStream
from integration.targets import events, ids
from pyspark import InheritableThread

from onceonly import exactly_once
from onceonly.audit import Verdict, audit
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark

EVENS, ODDS = "id % 2 = 0", "id % 2 = 1"


# ---- two calls for one batch


def test_a_second_call_for_a_batch_is_refused_and_says_how_to_write_it(stream, sink, ledger):
    wrapped = exactly_once(sink, ledger=ledger)

    def in_parts(df, batch_id):
        wrapped(df.where(EVENS), batch_id)
        wrapped(df.where(ODDS), batch_id)

    said = stream.receive(range(10), range(10, 20)).fail(in_parts)
    assert "[ONCE-E123]" in said
    assert "Batch 0" in said
    assert "before=" in said
    assert ids(sink) == [0, 2, 4, 6, 8]


@pytest.mark.postgres
def test_no_restart_brings_the_rest_of_a_batch_and_rows_by_hand_leave_the_verdict(stream, pg, spark):
    wrapped = exactly_once(pg.sink())

    def in_parts(df, batch_id):
        wrapped(df.where(EVENS), batch_id)
        wrapped(df.where(ODDS), batch_id)

    said = stream.receive(range(10), range(10, 20)).fail(in_parts)
    assert "no restart brings what the first call was not handed" in said
    assert "put what is missing of batch 0 into the sink by hand" in said
    pg.says("insert into orders (id, word) select n, 'w' || n from generate_series(1, 9, 2) n")
    stream.run(exactly_once(pg.sink(), before=lambda df: df))
    assert pg.ids() == [*range(20)]
    ledger, judged = SqlLedger(pg.dsn), pg.sink()
    with closing(ledger), closing(judged):
        ledger.open()
        found = audit(ledger, "orders", [judged], spark=spark)
    assert found.verdict is Verdict.EXACTLY_ONCE
    rows, code = found.findings
    assert (rows.code, rows.evidence) == ("A128", "5 rows beside those of the epochs")
    assert code.code == "A183"  # before= was another one


def test_a_refused_second_call_that_is_swallowed_stops_the_query_at_its_next_batch(stream, sink, ledger):
    wrapped = exactly_once(sink, ledger=ledger)

    def careless(df, batch_id):
        wrapped(df.where(EVENS), batch_id)
        try:
            wrapped(df.where(ODDS), batch_id)
        except Exception:
            caught.append(batch_id)

    caught: list[int] = []
    assert "[ONCE-E123]" in stream.receive(range(10), range(10, 20)).fail(careless)
    assert caught == [0]


def test_a_call_may_be_repeated_that_has_failed(stream, sink, ledger):
    failures = iter([RuntimeError("for once"), None, None])

    def shaky(df):
        if failure := next(failures):
            raise failure
        return df

    wrapped = exactly_once(sink, ledger=ledger, before=shaky)

    def patient(df, batch_id):
        try:
            wrapped(df, batch_id)
        except RuntimeError:
            wrapped(df, batch_id)

    stream.receive(range(5), range(5, 10)).run(patient)
    assert ids(sink) == list(range(10))


def test_two_wrappers_of_one_name_in_a_query_are_refused(stream, sink, ledger):
    even, odd = (exactly_once(MemorySink("memory:orders", sink.store), ledger=ledger) for _ in range(2))

    def in_parts(df, batch_id):
        even(df.where(EVENS), batch_id)
        odd(df.where(ODDS), batch_id)

    said = stream.receive(range(10)).fail(in_parts)
    assert "[ONCE-E103]" in said
    assert "another exactly_once()" in said
    assert ids(sink) == [0, 2, 4, 6, 8]


def test_two_wrappers_with_names_and_sinks_of_their_own_share_a_query(stream, ledger):
    even, odd = MemorySink("memory:even"), MemorySink("memory:odd")
    evens = exactly_once(even, name="even", ledger=ledger, before=lambda df: df.where(EVENS))
    odds = exactly_once(odd, name="odd", ledger=ledger, before=lambda df: df.where(ODDS))

    def both(df, batch_id):
        evens(df, batch_id)
        odds(df, batch_id)

    stream.receive(range(10), range(10, 20)).run(both)
    assert ids(even) == list(range(0, 20, 2))
    assert ids(odd) == list(range(1, 20, 2))


def test_a_batch_id_of_ones_own_is_refused(stream, sink, ledger):
    wrapped = exactly_once(sink, ledger=ledger)
    said = stream.receive(range(10), range(10, 20)).fail(lambda df, batch_id: wrapped(df, 0))
    assert "[ONCE-E124]" in said
    assert ids(sink) == list(range(10))


# ---- one object in two places


def test_one_sink_in_two_queries_is_refused_at_the_second_and_the_first_goes_on(spark, stream, sink, ledger):
    first = stream.receive(range(5)).start(exactly_once(sink, ledger=ledger), processingTime="100 milliseconds")
    try:
        first.processAllAvailable()
        twin = FileStream(spark, stream.root / "twin", name="twin").receive(range(100, 105))
        said = twin.fail(exactly_once(sink, ledger=ledger))
        stream.receive(range(5, 10))
        first.processAllAvailable()
    finally:
        first.stop()
    assert "[ONCE-E125]" in said
    assert '"orders"' in said
    assert ids(sink) == list(range(10))
    assert ledger.head("twin") is None


def test_one_wrapper_in_two_queries_is_refused_at_the_second_and_the_first_goes_on(spark, stream, sink, ledger):
    shared = exactly_once(sink, ledger=ledger)
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


def test_one_sink_under_two_names_in_a_query_is_refused(stream, sink, ledger):
    one, two = exactly_once(sink, name="one", ledger=ledger), exactly_once(sink, name="two", ledger=ledger)

    def both(df, batch_id):
        one(df.where(EVENS), batch_id)
        two(df.where(ODDS), batch_id)

    assert "[ONCE-E125]" in stream.receive(range(10)).fail(both)
    assert ids(sink) == [0, 2, 4, 6, 8]


def test_a_wrapper_and_a_sink_serve_again_once_their_query_has_ended(stream, sink, ledger):
    wrapped = exactly_once(sink, ledger=ledger)
    stream.receive(range(5)).run(wrapped)
    stream.receive(range(5, 10)).run(wrapped)
    stream.receive(range(10, 15)).run(exactly_once(sink, ledger=ledger))
    stream.receive(range(15, 20), range(20, 25)).run(wrapped)
    assert ids(sink) == list(range(25))


# ---- whose callback it is


def test_a_job_group_set_in_the_callback_does_not_make_each_batch_an_opening(stream, sink, ledger):
    wrapped = exactly_once(sink, ledger=ledger)

    def grouped(df, batch_id):
        df.sparkSession.sparkContext.setJobGroup(f"batch {batch_id}", "a group of one's own")
        wrapped(df, batch_id)

    stream.receive(range(5), range(5, 10), range(10, 15)).run(grouped)
    assert ids(sink) == list(range(15))
    assert len(events(ledger, EventKind.OPENED)) == 1


def test_a_thread_that_outlives_its_query_touches_the_sink_no_more(stream, sink, ledger):
    asleep, wake, said = threading.Event(), threading.Event(), []

    def sleepy(df):
        if not wake.is_set():
            asleep.set()
            wake.wait(60)
        return df

    wrapped = exactly_once(sink, ledger=ledger, before=sleepy)

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
    wake.set()
    threads[0].join(60)
    restarted.awaitTermination()
    assert said == [] or "[ONCE-E402]" in said[0]
    assert ids(sink) == list(range(10))


def test_rows_of_the_users_own_session_are_written_by_each_run_and_by_each_pipeline(spark, tmp_path):
    def of_pandas(df):
        return spark.createDataFrame(df.toArrow())

    for name in ("first", "second"):
        stream = FileStream(spark, tmp_path / name, name)
        sink, ledger = MemorySink(f"memory:{name}"), str(tmp_path / f"{name}.db")
        for start in (0, 10):
            wrapped = exactly_once(sink, ledger=ledger)
            stream.receive(range(start, start + 5), range(start + 5, start + 10))
            stream.run(lambda df, batch_id, wrapped=wrapped: wrapped(of_pandas(df), batch_id))
        assert ids(sink) == list(range(20))
