"""A sink that takes rows one by one, in real queries: the documentation's folder with a document for each key."""

from __future__ import annotations

import json

import pytest
from integration.targets import events
from pyspark.sql import functions as f
from tests.sinks.tutorial import FolderSink

from onceonly import OnceOnlyError, Recovery, Storage, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind
from onceonly_sinks.memory import MemorySink

pytestmark = pytest.mark.spark

BATCHES = (range(10), range(10, 20), range(20, 25))


@pytest.fixture
def folder(tmp_path):
    return FolderSink(tmp_path / "store", "id")


def by_key(df):
    """Ten keys, so that a later batch replaces rows of earlier ones."""
    return df.select((f.col("id") % 10).alias("id"), "word")


def documents(folder) -> dict[int, str]:
    rows = [json.loads(path.read_text()) for path in (folder.root / "rows").glob("%3D*.json")]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["word"] for row in rows}


def newest(*batches: range) -> dict[int, str]:
    return {number % 10: f"w{number}" for batch in batches for number in batch}


def marked(folder) -> list[int]:
    reader = FolderSink.from_address(folder.address)
    reader.open("orders")
    return [marker.epoch.number for marker, _ in reader.history()]


@pytest.mark.parametrize(
    "cut_off", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_an_epoch_that_was_cut_off_between_rows_and_marker_is_put_again_by_its_replay(stream, folder, ledger, cut_off):
    stream.receive(*BATCHES)
    faults.arm(Point.PREPARE_SENT, "raise", cut_off)
    assert "InjectedFault" in stream.fail(exactly_once(folder, storage=Storage(ledger=ledger)), shape=by_key)
    assert documents(folder) == newest(*BATCHES[:cut_off])  # a reader sees what no marker stands for
    assert marked(folder) == list(range(1, cut_off))
    stream.run(exactly_once(folder, storage=Storage(ledger=ledger)), shape=by_key)
    assert documents(folder) == newest(*BATCHES)
    assert marked(folder) == [1, 2, 3]


def test_a_lost_answer_is_found_by_its_marker(stream, folder, ledger):
    faults.arm(Point.COMMIT_SENT, "raise", 2)
    stream.receive(*BATCHES).run(exactly_once(folder, storage=Storage(ledger=ledger)), shape=by_key)
    assert documents(folder) == newest(*BATCHES)
    assert marked(folder) == [1, 2, 3]
    assert len(events(ledger, EventKind.RESOLVED)) == 1


def test_a_batch_under_its_marker_is_skipped(stream, folder, ledger):
    stream.receive(*BATCHES).run(exactly_once(folder, storage=Storage(ledger=ledger)), shape=by_key)
    stream.remove("commits", 2)
    stream.receive(range(30, 33)).run(exactly_once(folder, storage=Storage(ledger=ledger)), shape=by_key)
    assert len(events(ledger, EventKind.SKIPPED)) == 1
    assert documents(folder) == newest(*BATCHES, range(30, 33))


def test_a_plan_that_draws_is_refused_before_a_row_is_put(stream, folder, ledger):
    def drawn(df):
        return by_key(df).withColumn("draw", f.rand(7))

    taken = MemorySink()
    wrapped, other = (
        exactly_once(folder, storage=Storage(ledger=ledger)),
        exactly_once(taken, name="other", storage=Storage(ledger=ledger)),
    )
    assert "[ONCE-E129]" in wrapped.explain(drawn(stream.receive(*BATCHES[:1]).read()))

    def write(df, batch_id):
        other(df, batch_id)  # a sink with a transaction takes them
        wrapped(df, batch_id)

    assert "[ONCE-E129]" in stream.fail(write, shape=drawn)
    assert documents(folder) == {}
    assert len(taken.rows()) == 10


def test_what_the_callback_adds_is_refused_too(stream, folder, ledger):
    said = {}

    def write(df, batch_id):
        for made in ("uuid()", "current_timestamp()"):
            adds = f.expr(f"cast({made} as string)")
            same = FolderSink.from_address(folder.address)  # one object may not be in two pipelines
            wrapped = exactly_once(
                same,
                name=made,
                storage=Storage(ledger=ledger),
                transform=lambda df, adds=adds: df.withColumn("made", adds),
            )
            with pytest.raises(OnceOnlyError) as caught:
                wrapped(df, batch_id)
            said[made] = caught.value.code

    stream.receive(*BATCHES[:1]).run(write, shape=by_key)
    assert said == {"uuid()": "E129", "current_timestamp()": "E129"}
    assert documents(folder) == {}


def test_what_is_kept_of_a_run_is_the_weaker_promise_and_the_audit_does_not_say_more(stream, folder, ledger):
    wrapped = exactly_once(folder, storage=Storage(ledger=ledger))
    before = wrapped.explain(by_key(stream.receive(*BATCHES).read()))
    stream.run(wrapped, shape=by_key)
    assert before == wrapped.explain()
    [kept] = events(ledger, EventKind.PROMISED)
    assert "same final result" in kept
    assert "committed together" not in kept
    result = audit(ledger, "orders", [FolderSink.from_address(folder.address)])
    assert (result.verdict, result.exit_code) == (Verdict.CANNOT_TELL, 3)
    assert [finding.code for finding in result.findings] == ["A167"]


@pytest.mark.parametrize(
    "chosen",
    [{"storage": Storage(staging="/nowhere")}, {"recovery": Recovery(overlap="trim")}],
    ids=lambda chosen: next(iter(chosen)),
)
def test_what_hangs_on_a_transaction_is_refused_when_the_call_is_made(folder, chosen):
    with pytest.raises(OnceOnlyError, match="without a transaction") as caught:
        exactly_once(folder, **chosen)
    assert caught.value.code == "E128"


def test_it_stands_beside_no_other_sink(folder, sink):
    with pytest.raises(OnceOnlyError, match="it is given with memory:orders") as caught:
        exactly_once(folder, sink)
    assert caught.value.code == "E128"
