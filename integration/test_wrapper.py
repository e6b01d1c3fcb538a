"""The wrapper inside a real streaming query, on the reference sink: identity, order, refusals, interrupts, state."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from integration.printed import obey
from integration.streams import FileStream, settings
from integration.targets import events, ids
from pyspark.sql import functions as f

from onceonly import Recovery, Storage, exactly_once
from onceonly.spark import input
from onceonly.spark.detect import engine_for
from onceonly.spark.sources import HadoopFiles
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.storage import open_storage
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark


def test_each_batch_is_an_epoch_with_a_receipt(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
    stream.receive(range(10), range(10, 20), range(20, 30)).run(wrapped)
    assert ids(sink) == list(range(30))
    assert [record.epoch.number for record in ledger.epochs("orders")] == [1, 2, 3]
    assert [record.epoch.digest.rows for record in ledger.epochs("orders")] == [10, 10, 10]
    assert wrapped.last_receipts
    assert wrapped.last_receipts[0].epoch == 3


def test_the_ledger_knows_the_input_files_of_each_epoch(stream, sink, ledger):
    stream.per_trigger = 2
    stream.receive(range(5), range(5, 10), range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    names = [[Path(file.path).name for file in record.files] for record in ledger.epochs("orders")]
    assert names == [["part-0000.parquet", "part-0001.parquet"], ["part-0002.parquet"]]


def test_the_default_ledger_lies_beside_the_checkpoint_and_survives_its_loss(stream, sink):
    stream.receive(range(3)).run(exactly_once(sink))
    stream.lose_checkpoint()
    kept = SqlLedger(str(stream.root / "ck.onceonly.db"))
    assert [record.epoch.digest.rows for record in kept.epochs("orders")] == [3]
    kept.close()
    assert "[ONCE-E211]" in stream.fail(exactly_once(sink))


def test_the_running_query_and_the_files_on_disk_say_the_same(stream, sink, ledger):
    compared = []

    def compare(df, batch_id):
        run = engine_for(df).discover(df)
        on_disk = input.see_on_disk(open_storage(run.checkpoint), batch_id, run)
        asked = input.see(batch_id, through_hadoop(df, run))
        compared.append(on_disk == asked == input.see(batch_id, run))

    stream.receive(range(3), range(3, 6), range(6, 9)).run(compare)
    assert compared == [True, True, True]


def test_where_the_running_query_cannot_be_asked_the_files_are_read(stream, sink):
    compared = []

    def compare(df, batch_id):
        run = engine_for(df).discover(df)
        stranger = replace(through_hadoop(df, run), handle=replace(run.handle, offsets=df.sparkSession._jsparkSession))
        compared.append(input.see(batch_id, stranger) == input.see(batch_id, run))

    stream.receive(range(3), range(3, 6)).run(compare)
    assert compared == [True, True]


def through_hadoop(df, run):
    """The run as if its checkpoint were on no disk of this machine."""
    files = HadoopFiles(df.sparkSession.sparkContext, df.sparkSession._jsparkSession, run.checkpoint)
    return replace(run, files=files, entry={})


def test_it_may_be_called_inside_a_function_of_the_users_own(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger), transform=lambda df: df.where("id % 2 = 0"))
    seen = []

    def write(df, batch_id):
        wrapped(df, batch_id)
        seen.append(batch_id)

    stream.receive(range(10)).run(write)
    assert seen == [0]
    assert ids(sink) == [0, 2, 4, 6, 8]


# ---- replay


def test_a_replayed_batch_is_skipped_with_proof(stream, sink, ledger):
    stream.receive(range(10), range(10, 20)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.remove("commits", 1)
    stream.receive(range(20, 30)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(30))
    assert len(events(ledger, EventKind.SKIPPED)) == 1


@pytest.mark.slow
def test_a_checkpoint_rolled_back_by_several_batches_is_skipped_as_far_as_it_proves_itself(stream, sink, ledger):
    stream.receive(range(5), range(5, 10), range(10, 15), range(15, 20)).run(
        exactly_once(sink, storage=Storage(ledger=ledger))
    )
    stream.remove("commits", 3, 2, 1)
    stream.remove("offsets", 3, 2)
    said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert len(events(ledger, EventKind.SKIPPED)) == 1
    assert "[ONCE-E205]" in said
    assert "Batch 2" in said
    assert ids(sink) == list(range(20))


def test_a_lost_ledger_is_filled_from_the_sink_and_the_replay_still_skipped(stream, sink, tmp_path):
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=tmp_path / "one.db")))
    stream.remove("commits", 1)
    stream.receive(range(10, 15)).run(exactly_once(sink, storage=Storage(ledger=tmp_path / "two.db")))
    second = SqlLedger(str(tmp_path / "two.db"))
    assert ids(sink) == list(range(15))
    assert events(second, EventKind.REBUILT)
    assert [record.epoch.number for record in second.epochs("orders")] == [1, 2, 3]


@pytest.mark.slow
def test_a_record_rebuilt_from_a_marker_gets_its_input_files_back_from_the_replay(stream, sink, tmp_path):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=tmp_path / "one.db")))
    stream.remove("commits", 0)
    stream.run(exactly_once(sink, storage=Storage(ledger=tmp_path / "two.db")))
    (record,) = SqlLedger(str(tmp_path / "two.db")).epochs("orders")
    assert [Path(file.path).name for file in record.files] == ["part-0000.parquet"]


# ---- damaged, lost and copied checkpoints


def test_a_deleted_checkpoint_is_refused_and_nothing_is_lost_or_doubled(stream, sink, ledger):
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E211]" in said
    assert "onceonly recover rebuild-checkpoint" in said
    assert ids(sink) == list(range(10))


@pytest.mark.slow
def test_a_new_checkpoint_with_the_same_offset_text_but_more_files_is_refused(stream, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.lose_checkpoint()
    stream.per_trigger = 10
    stream.receive(range(5, 10))
    assert "[ONCE-E211]" in stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(5))


@pytest.mark.slow
def test_a_moved_checkpoint_goes_on(stream, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.checkpoint = stream.checkpoint.rename(stream.root / "elsewhere")
    stream.receive(range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(10))


def test_a_batch_id_that_comes_back_for_another_range_is_refused(stream, sink, ledger):
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.remove("commits", 1)
    stream.remove("offsets", 1)
    stream.receive(range(10, 15))
    said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E205]" in said
    assert "--entry 1" in said
    assert ids(sink) == list(range(10))


@pytest.mark.slow
def test_an_old_copy_of_a_checkpoint_is_refused_where_it_diverges(stream, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    shutil.copytree(stream.checkpoint, stream.root / "copy")
    stream.receive(range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.checkpoint = stream.root / "copy"
    stream.per_trigger = 5
    stream.receive(range(10, 15))
    assert "[ONCE-E205]" in stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(10))


@pytest.mark.slow
def test_a_checkpoint_that_another_callback_moved_on_is_ahead(stream, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.receive(range(5, 10), range(10, 15))
    stream.run(lambda df, batch_id: None)
    stream.receive(range(15, 20))
    said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E229]" in said
    assert ids(sink) == list(range(5))
    obey(said, "recover rewind")
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(20))


@pytest.mark.slow
def test_returning_early_on_an_empty_batch_is_noticed_and_said(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))

    def careless(df, batch_id):
        if df.isEmpty():
            return
        wrapped(df, batch_id)

    wanted = {"shape": lambda df: df.where("id < 5 or id >= 10")}
    stream.receive(range(5), range(5, 10), range(10, 15))
    said = stream.fail(careless, **wanted)
    assert "[ONCE-E229]" in said
    assert "isEmpty" in said
    assert ids(sink) == list(range(5))
    obey(said, "recover rewind")
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger)), **wanted)
    assert ids(sink) == [*range(5), *range(10, 15)]
    assert [record.epoch.digest.rows for record in ledger.epochs("orders")] == [5, 0, 5]


def test_an_empty_batch_is_an_epoch(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
    stream.receive(range(5), range(5, 10), range(10, 15)).run(wrapped, shape=lambda df: df.where("id < 5 or id >= 10"))
    assert [record.epoch.digest.rows for record in ledger.epochs("orders")] == [5, 0, 5]


@pytest.mark.slow
def test_an_unknown_offset_log_version_is_refused(stream, sink, ledger):
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))

    def later_version(df, batch_id):
        run = engine_for(df).discover(df)
        stream.edit("offsets", batch_id, "v9\n{}\n{}")
        input.see_on_disk(open_storage(run.checkpoint), batch_id, run)

    stream.receive(range(10, 15))
    assert "[ONCE-E601]" in stream.fail(later_version)


@pytest.mark.slow
def test_an_emptied_offset_entry_is_refused(stream, sink, ledger):
    def emptied(df, batch_id):
        run = engine_for(df).discover(df)
        stream.edit("offsets", batch_id, "")
        input.see_on_disk(open_storage(run.checkpoint), batch_id, run)

    said = stream.receive(range(10, 15)).fail(emptied)
    assert "[ONCE-E602]" in said
    assert "recover rebuild-checkpoint" in said


def test_a_deleted_input_file_of_a_pending_batch_is_refused_not_read_as_nothing(stream, sink, ledger):
    stream.receive(range(5), range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.receive(range(10, 15)).fail(_dies)
    (stream.inbox / "part-0002.parquet").unlink()
    said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert "[ONCE-E214]" in said
    assert "part-0002.parquet" in said
    assert ids(sink) == list(range(10))


def _dies(df, batch_id):
    raise RuntimeError("the job dies before it writes")


# ---- first contact and names


@pytest.mark.slow
def test_a_sink_with_rows_of_unknown_origin_is_refused_unless_adopted(stream, spark, sink, ledger):
    stream.receive(range(5)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    other = FileStream(spark, stream.root / "other", name="newcomer").receive(range(100, 105))
    assert "[ONCE-E201]" in other.fail(
        exactly_once(MemorySink(id="memory:second", store=sink.store), storage=Storage(ledger=ledger))
    )
    other.lose_checkpoint()
    adopted = MemorySink(id="memory:second", store=sink.store)
    other.run(exactly_once(adopted, storage=Storage(ledger=ledger), recovery=Recovery(adopt="here")))
    assert ids(sink) == [*range(5), *range(100, 105)]


@pytest.mark.slow
def test_an_empty_sink_behind_a_running_query_is_refused_unless_adopted(stream, sink, ledger):
    stream.receive(range(5)).run(lambda df, batch_id: None)
    stream.receive(range(5, 10))
    assert "[ONCE-E217]" in stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger), recovery=Recovery(adopt="here")))
    assert ids(sink) == list(range(5, 10))


@pytest.mark.slow
def test_a_query_without_a_name_is_refused(stream, sink, ledger):
    stream.name = None
    assert "[ONCE-E101]" in stream.receive(range(5)).fail(exactly_once(sink, storage=Storage(ledger=ledger)))
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger), name="orders"))
    assert ids(sink) == list(range(5))


@pytest.mark.slow
def test_a_temporary_checkpoint_is_refused(spark, stream, sink, ledger):
    writer = stream.receive(range(5)).read().writeStream.queryName("orders")
    query = writer.foreachBatch(exactly_once(sink, storage=Storage(ledger=ledger))).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="ONCE-E105"):
        query.awaitTermination()


@pytest.mark.slow
def test_one_pipeline_twice_in_one_process_is_refused(spark, stream, sink, ledger):
    first = stream.receive(range(5)).start(
        exactly_once(sink, storage=Storage(ledger=ledger)), processingTime="1 second"
    )
    try:
        first.processAllAvailable()
        twin = FileStream(spark, stream.root / "twin", name="twin").receive(range(5))
        said = twin.fail(
            exactly_once(
                MemorySink(id="memory:orders", store=sink.store), name="orders", storage=Storage(ledger=ledger)
            )
        )
    finally:
        first.stop()
    assert "[ONCE-E103]" in said


def test_a_call_outside_of_a_query_is_refused(spark, sink):
    with pytest.raises(Exception, match="ONCE-E110"):
        exactly_once(sink, name="orders")(spark.range(3), 0)


@pytest.mark.slow
def test_a_plain_thread_inside_the_callback_is_refused(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))
    caught = []

    def threaded(df, batch_id):
        def work():
            try:
                wrapped(df, batch_id)
            except Exception as error:
                caught.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        raise RuntimeError("stop here")

    stream.receive(range(5)).fail(threaded)
    assert "[ONCE-E110]" in caught[0]


# ---- interrupts


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt, *(pytest.param(one, marks=pytest.mark.slow) for one in (SystemExit, GeneratorExit))]
)
def test_a_base_exception_in_the_callback_stops_the_query_instead_of_hanging_it(stream, sink, ledger, stop):
    def leave(df):
        raise stop

    said = stream.receive(range(5)).fail(exactly_once(sink, storage=Storage(ledger=ledger), transform=leave))
    assert "CallbackInterrupted" in said
    assert ids(sink) == []
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(5))


def test_stop_in_the_middle_of_an_action_leaves_the_epoch_to_the_next_run(spark, stream, sink, ledger):
    started = threading.Event()

    def slow(df):
        started.set()
        return df.where(f.expr("java_method('java.lang.Thread', 'sleep', cast(1000 as bigint)) is null"))

    query = stream.receive(range(20)).start(exactly_once(sink, storage=Storage(ledger=ledger), transform=slow))
    assert started.wait(30)
    until = time.monotonic() + 30
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < until
        time.sleep(0.05)
    query.stop()
    assert not stream.log_entry("commits", 0).exists()
    stream.run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(20))


def test_a_callback_that_outlives_stop_keeps_others_out_until_it_has_ended(spark, stream, sink, ledger):
    asleep, wake = threading.Event(), threading.Event()

    def sleepy(df):
        asleep.set()
        wake.wait(60)
        return df

    with settings(spark, {"spark.sql.streaming.stopTimeout": "500ms"}):
        try:
            old = stream.receive(range(5)).start(exactly_once(sink, storage=Storage(ledger=ledger), transform=sleepy))
            assert asleep.wait(30)
            with pytest.raises(Exception, match="failed to stop"):
                old.stop()
            twin = FileStream(spark, stream.root / "twin", name="twin").receive(range(5))
            same = MemorySink(id="memory:orders", store=sink.store)
            assert "[ONCE-E103]" in twin.fail(exactly_once(same, name="orders", storage=Storage(ledger=ledger)))
        finally:
            wake.set()
    old.stop()
    stream.receive(range(5, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)))
    assert ids(sink) == list(range(10))


# ---- state


def counted(df):
    return df.groupBy((f.col("id") % 3).alias("k")).agg(f.count("*").alias("n"))


def test_a_skipped_stateful_batch_is_executed_so_that_state_goes_on(stream, sink, ledger):
    options = {"shape": counted, "mode": "update"}
    stream.receive(range(9), range(9, 18)).run(exactly_once(sink, storage=Storage(ledger=ledger)), **options)
    stream.remove("commits", 1)
    stream.receive(range(18, 27)).run(exactly_once(sink, storage=Storage(ledger=ledger)), **options)
    newest = {row["k"]: row["n"] for row in sink.rows()}
    assert newest == {0: 9, 1: 9, 2: 9}
    assert len(events(ledger, EventKind.SKIPPED)) == 1
    assert Counter(row["n"] for row in sink.rows()) == {3: 3, 6: 3, 9: 3}


@pytest.mark.slow
def test_a_stateful_replay_with_other_results_is_refused(stream, sink, ledger):
    stream.receive(range(9), range(9, 18)).run(
        exactly_once(sink, storage=Storage(ledger=ledger)), shape=counted, mode="update"
    )
    stream.remove("commits", 1)

    def other(df):
        return counted(df.where("id <> 10"))

    said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)), shape=other, mode="update")
    assert "[ONCE-E215]" in said


@pytest.mark.slow
def test_drop_duplicates_goes_on_after_a_replay(stream, sink, ledger):
    def unique(df):
        return df.dropDuplicates(["word"])

    stream.receive(range(5), range(3, 8)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=unique)
    stream.remove("commits", 1)
    stream.receive(range(6, 10)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=unique)
    assert ids(sink) == list(range(10))


def windowed(df):
    timed = df.select(f.timestamp_seconds(f.col("id") * 10).alias("at"))
    return timed.withWatermark("at", "10 seconds").groupBy(f.window("at", "30 seconds")).agg(f.count("*").alias("n"))


def test_a_batch_without_data_that_closes_a_window_is_an_epoch(stream, sink, ledger):
    stream.receive(range(10), range(10, 20)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=windowed)
    records = ledger.epochs("orders")
    assert any(record.epoch.written.empty for record in records)
    assert sum(row["n"] for row in sink.rows()) == sum(record.epoch.digest.rows * 3 for record in records)


@pytest.mark.slow
def test_a_lost_checkpoint_of_a_stateful_query_says_that_state_is_lost(stream, sink, ledger):
    stream.receive(range(9)).run(exactly_once(sink, storage=Storage(ledger=ledger)), shape=counted, mode="update")
    stream.lose_checkpoint()
    said = stream.fail(exactly_once(sink, storage=Storage(ledger=ledger)), shape=counted, mode="update")
    assert "[ONCE-E206]" in said


@pytest.mark.parametrize(
    "expression", ["uuid()", *(pytest.param(one, marks=pytest.mark.slow) for one in ("rand()", "now()"))]
)
def test_a_nondeterministic_stateful_plan_is_refused_by_name(stream, sink, ledger, expression):
    def unstable(df):
        return counted(df.where(f"length(cast({expression} as string)) > 0"))

    said = stream.receive(range(9)).fail(
        exactly_once(sink, storage=Storage(ledger=ledger)), shape=unstable, mode="update"
    )
    assert "[ONCE-E109]" in said
    assert expression[:-1] in said
    assert sink.rows() == []


@pytest.mark.slow
def test_a_nondeterministic_stateless_plan_is_fine(stream, sink, ledger):
    stream.receive(range(5)).run(
        exactly_once(sink, storage=Storage(ledger=ledger)),
        shape=lambda df: df.select("id", f.expr("uuid()").alias("word")),
    )
    assert ids(sink) == list(range(5))


@pytest.mark.slow
def test_float_aggregates_leave_the_digest_and_are_named(stream, sink, ledger):
    wrapped = exactly_once(sink, storage=Storage(ledger=ledger))

    def averaged(df):
        return df.groupBy((f.col("id") % 2).alias("k")).agg(f.avg("id").alias("mean"))

    stream.receive(range(9)).run(wrapped, shape=averaged, mode="update")
    assert "excludes mean: sums of floats (W702)" in wrapped.explain()
