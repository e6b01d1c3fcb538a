"""Every refusal prints commands; here they are run as printed, and the query goes on."""

from __future__ import annotations

from collections import Counter

import pytest
from integration.printed import command, run
from pyspark.sql import functions as f

from onceonly import Storage, exactly_once

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def counted(df):
    return df.groupBy((f.col("id") % 3).alias("id")).agg(f.count("*").alias("n"))


@pytest.mark.parametrize("target", ["postgres", pytest.param("delta", marks=pytest.mark.slow)], indirect=True)
def test_a_deleted_checkpoint_is_put_back(stream, target):
    stream.receive(range(5), range(5, 10)).run(exactly_once(target.sink()))
    stream.lose_checkpoint()
    said = stream.receive(range(10, 15)).fail(exactly_once(target.sink()))
    run(command(said, "recover rebuild-checkpoint"), "--yes")
    stream.run(exactly_once(target.sink()))
    assert target.ids() == list(range(15))


@pytest.mark.slow
def test_where_a_pipeline_stands_is_printed_without_its_checkpoint(stream, either):
    stream.receive(range(5), range(5, 10)).run(exactly_once(either.sink()))
    stream.lose_checkpoint()
    said = stream.fail(exactly_once(either.sink()))
    assert '"logOffset":1' in run(command(said, "epochs show --offsets"))


@pytest.mark.slow
def test_rows_are_written_again_only_when_that_is_said(stream, either):
    stream.receive(range(5)).run(exactly_once(either.sink()))
    stream.lose_checkpoint()
    said = stream.receive(range(5, 10)).fail(exactly_once(either.sink()))
    run(command(said, "accept-duplicates"), "--yes")
    stream.run(exactly_once(either.sink()))
    assert Counter(either.ids()) == Counter([*range(5), *range(10)])


@pytest.mark.slow
def test_a_gap_is_given_up_by_name(stream, either):
    stream.receive(range(5)).run(exactly_once(either.sink()))
    stream.receive(range(5, 10)).run(lambda df, batch_id: None)
    said = stream.receive(range(10, 15)).fail(exactly_once(either.sink()))
    assert "[ONCE-E229]" in said
    run(command(said, "accept-loss"), "--yes")
    stream.run(exactly_once(either.sink()))
    assert either.ids() == [*range(5), *range(10, 15)]


@pytest.mark.slow
def test_a_batch_that_was_not_handed_over_is_read_again(stream, either):
    stream.receive(range(5)).run(exactly_once(either.sink()))
    stream.receive(range(5, 10)).run(lambda df, batch_id: None)
    said = stream.receive(range(10, 15)).fail(exactly_once(either.sink()))
    run(command(said, "recover rewind"), "--yes")
    stream.run(exactly_once(either.sink()))
    assert either.ids() == list(range(15))


@pytest.mark.slow
def test_a_batch_that_was_cut_anew_gets_its_recorded_entry_back(stream, either):
    stream.receive(range(5), range(5, 10)).run(exactly_once(either.sink()))
    stream.remove("commits", 1)
    stream.remove("offsets", 1)
    said = stream.receive(range(10, 15)).fail(exactly_once(either.sink()))
    run(command(said, "--entry 1"), "--yes")
    stream.run(exactly_once(either.sink()))
    assert either.ids() == list(range(15))


@pytest.mark.slow
def test_a_lost_table_is_filled_from_here_on_by_name(stream, target):
    ledger = stream.root / "ledger.db"
    stream.receive(range(5)).run(exactly_once(target.sink(), storage=Storage(ledger=ledger)))
    target.vanish()
    said = stream.receive(range(5, 10)).fail(exactly_once(target.sink(), storage=Storage(ledger=ledger)))
    assert "[ONCE-E208]" in said
    run(command(said, "accept-loss"), "--yes")
    stream.run(exactly_once(target.sink(), storage=Storage(ledger=ledger)))
    assert target.ids() == list(range(5, 10))


@pytest.mark.slow
def test_lost_state_is_accepted_by_name(stream, either):
    options = {"shape": counted, "mode": "update"}
    stream.receive(range(9)).run(exactly_once(either.sink()), **options)
    stream.lose_checkpoint()
    said = stream.fail(exactly_once(either.sink()), **options)
    assert "[ONCE-E206]" in said
    run(command(said, "accept-state-loss"), "--yes")
    said = stream.fail(exactly_once(either.sink()), **options)
    assert "[ONCE-E211]" in said  # the state was given up; that rows come again is another decision
    run(command(said, "accept-duplicates"), "--yes")
    stream.run(exactly_once(either.sink()), **options)
    assert either.ids() == [0, 0, 1, 1, 2, 2]


@pytest.mark.slow
def test_recomputed_state_is_kept_by_name(stream, either):
    options = {"shape": counted, "mode": "update"}
    stream.receive(range(9), range(9, 18)).run(exactly_once(either.sink()), **options)
    stream.remove("commits", 1)
    other = {"shape": lambda df: counted(df.where("id <> 10")), "mode": "update"}
    said = stream.fail(exactly_once(either.sink()), **other)
    assert "[ONCE-E215]" in said
    run(command(said, "--keep-recomputed-state"), "--yes")
    stream.receive(range(18, 27)).run(exactly_once(either.sink()), **other)
    assert either.ids() == sorted([0, 1, 2] * 3)


@pytest.mark.slow
def test_missing_input_is_given_up_by_name(stream, either):
    stream.receive(range(5)).run(exactly_once(either.sink()))
    stream.receive(range(5, 10)).fail(_dies)
    (stream.inbox / "part-0001.parquet").unlink()
    said = stream.fail(exactly_once(either.sink()))
    assert "[ONCE-E214]" in said
    run(command(said, "accept-loss"), "--yes")
    stream.receive(range(10, 15)).run(exactly_once(either.sink()))
    assert either.ids() == [*range(5), *range(10, 15)]


def _dies(df, batch_id):
    raise RuntimeError("the job dies before it writes")


def test_a_change_by_somebody_else_is_accepted_by_name(stream, delta):
    stream.receive(range(5)).run(exactly_once(delta.sink()))
    delta.table.delete("id = 3")
    said = stream.receive(range(5, 10)).fail(exactly_once(delta.sink()))
    run(command(said, "accept-change"), "--yes")
    stream.run(exactly_once(delta.sink()))
    assert delta.ids() == [0, 1, 2, *range(4, 10)]


@pytest.mark.slow
def test_an_audit_of_a_clean_pipeline_says_exactly_once(stream, either):
    ledger = str(stream.root / "ledger.db")
    stream.receive(range(5), range(5, 10)).run(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    said = run(["onceonly", "audit", "--query", "orders", "--ledger", ledger, "--output", "json"])
    assert '"verdict": "EXACTLY ONCE"' in said


@pytest.mark.slow
def test_a_pipeline_is_resolved_without_spark(stream, either):
    ledger = str(stream.root / "ledger.db")
    stream.receive(range(5)).run(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    said = run(["onceonly", "recover", "resolve", "--query", "orders", "--ledger", ledger, "--yes"])
    assert "epoch 1" in said
    stream.receive(range(5, 10)).run(exactly_once(either.sink(), storage=Storage(ledger=ledger)))
    assert either.ids() == list(range(10))
