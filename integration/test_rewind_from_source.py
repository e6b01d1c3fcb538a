"""A sink that was set back gets what nothing but the source still holds, through the query's own code, to the row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from integration.printed import command, killed, obey, refused, run
from integration.streams import FileStream
from integration.targets import events
from integration.test_rewind import FIVES, TableBackup, counted
from pyspark.sql import functions as f

from onceonly import Storage, exactly_once
from onceonly.faults import Point
from onceonly_checkpoints.ledger import EventKind

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

CODE = """
from pyspark.sql import functions as f

def stream(spark):
    return spark.readStream.schema("id bigint, word string").option("maxFilesPerTrigger", 1).parquet({inbox!r})

def changed(spark):
    return stream(spark).where("id <> 12")

def shouted(rows):
    return rows.withColumn("word", f.upper("word"))

def drawn(spark):
    return stream(spark).withColumn("word", f.rand().cast("string"))

def counted(spark):
    shown = stream(spark).groupBy((f.col("id") % 3).alias("id")).agg(f.count("*").cast("string").alias("word"))
    return shown.writeStream.outputMode("update")
"""


@pytest.fixture(autouse=True)
def code(stream: FileStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module ``jobs`` of the user's, which the command finds."""
    (tmp_path / "jobs.py").write_text(CODE.format(inbox=str(stream.inbox)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def behind(stream: FileStream, pg, delta, ledger):
    """Some epochs that a table lacks, two unless said: its neighbour, which has a key, cannot give them, and only the
    newest is staged. The refusal of the rewind that the refused query prints."""

    def made(count: int = 2, **options) -> str:
        def wrapped():
            return exactly_once(
                pg.sink(key="id"), delta.sink(), storage=Storage(ledger=ledger), transform=options.get("transform")
            )

        shape = {name: option for name, option in options.items() if name != "transform"}
        stream.receive(*FIVES[:2]).run(wrapped(), **shape)
        backup = TableBackup(delta)
        stream.receive(*(range(at * 5, at * 5 + 5) for at in range(2, 2 + count))).run(wrapped(), **shape)
        backup.put_back()
        said = stream.receive(range(10 + count * 5, 15 + count * 5)).fail(wrapped(), **shape)
        assert "[ONCE-E207]" in said
        told = refused(command(said, "recover rewind"), "--yes")
        assert "[ONCE-E232]" in told
        return told

    return made


def filled_in(told: str, function: str) -> list[str]:
    """The printed command with the name of a function in it."""
    return [word.replace("MODULE:FUNCTION", function) for word in command(told, "--with MODULE:FUNCTION")]


def counted_in_delta(ledger, rows: int, *more: str) -> str:
    """The verdict of an audit that counts each row of the Delta table, and none of those that replace one another."""
    said = run(["onceonly", "audit", "--query", "orders", "--ledger", ledger.address, *more], code=3)
    assert f"; {rows} rows counted there, {rows} committed." in said
    assert said.count("rows are not counted") == 1, said
    return said.partition("  orders")[0]


@pytest.mark.slow
def test_rows_that_nothing_else_holds_come_from_the_source_wherever_it_is_killed(
    behind, stream, pg, delta, ledger
) -> None:
    rewind = filled_in(behind(), "jobs:stream")
    planned = run(rewind, code=4)
    assert "gets epochs 3..4, 10 rows: 1 from source, 1 from stage" in planned
    for point in (Point.PREPARE_SENT, Point.COMMIT_SENT, Point.COMMIT_AFTER):
        killed(rewind, point)
    # Another command may be running epochs again at the same time, so none removes what a killed one left.
    left = set(stream.root.glob("*.onceonly.replay/*"))
    run(rewind, "--yes")
    assert delta.ids() == list(range(20))
    assert events(ledger, EventKind.ROLLED_FORWARD) == ["delta:table is at epoch 4"]
    stream.run(exactly_once(pg.sink(key="id"), delta.sink(), storage=Storage(ledger=ledger)))
    assert pg.ids() == delta.ids() == list(range(25))
    assert counted_in_delta(ledger, 25, "--deep") == "CANNOT TELL"
    assert set(stream.root.glob("*.onceonly.replay/*")) == left


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 5, 20])
def test_however_many_epochs_it_lacks_the_source_gives_them(behind, stream, pg, delta, ledger, count) -> None:
    rewind = filled_in(behind(count), "jobs:stream")
    told = f"gets epochs 3..{2 + count}, {count * 5} rows: {count - 1} from source, 1 from stage"
    assert told in run(rewind, code=4)
    run(rewind, "--yes")
    assert events(ledger, EventKind.ROLLED_FORWARD)[-1].endswith("rows from: source, stage")
    assert not list(stream.root.glob("*.onceonly.replay/*"))
    stream.run(exactly_once(pg.sink(key="id"), delta.sink(), storage=Storage(ledger=ledger)))
    assert pg.ids() == delta.ids() == list(range(15 + count * 5))
    assert counted_in_delta(ledger, 15 + count * 5) == "NOT COUNTED"


@pytest.mark.slow
def test_rows_that_are_drawn_anew_are_refused_looked_at_and_given_up_by_what_is_printed(
    behind, stream, pg, delta, ledger
) -> None:
    def drawn(rows):
        return rows.withColumn("word", f.rand().cast("string"))

    rewind = filled_in(behind(shape=drawn), "jobs:drawn")
    held = sorted(delta.rows("id", "word"))
    said = refused(rewind, "--yes")
    assert "[ONCE-E233]" in said
    assert "Epoch 3" in said
    assert sorted(delta.rows("id", "word")) == held
    assert [one[0] for one in held] == list(range(10))
    looked = run(command(said, "--deep"), code=1)
    assert "A142" in looked
    obey(said, "--accept-loss 3..4")
    stream.run(exactly_once(pg.sink(key="id"), delta.sink(), storage=Storage(ledger=ledger)), shape=drawn)
    assert delta.ids() == [*range(10), *range(20, 25)]
    assert pg.ids() == list(range(25))
    assert counted_in_delta(ledger, 15) == "NOT COUNTED (rows of epochs 3 to 4 given up, accepted)"


@pytest.mark.slow
def test_code_that_gives_other_rows_writes_none_of_the_epoch_that_differs(behind, stream, pg, delta, ledger) -> None:
    told = behind()
    said = refused(filled_in(told, "jobs:changed"), "--yes")
    assert "[ONCE-E233]" in said
    assert "Epoch 3" in said
    assert delta.ids() == list(range(10))
    run(filled_in(told, "jobs:stream"), "--yes")
    stream.run(exactly_once(pg.sink(key="id"), delta.sink(), storage=Storage(ledger=ledger)))
    assert delta.ids() == list(range(25))
    assert pg.ids() == list(range(25))
    assert counted_in_delta(ledger, 25) == "NOT COUNTED"


@pytest.mark.slow
def test_files_that_are_gone_are_named_before_anything_is_done(behind, stream, delta) -> None:
    told = behind()
    (stream.inbox / "part-0002.parquet").unlink()
    said = refused(filled_in(told, "jobs:stream"), "--yes")
    assert "[ONCE-E232]" in said
    assert "Epoch 3" in said
    assert "the source lacks" in said
    assert "part-0002.parquet" in said
    assert "--with" not in said
    assert delta.ids() == list(range(10))


@pytest.mark.slow
def test_a_query_with_state_is_run_again_from_the_state_of_then(spark, behind, stream, pg, delta, ledger) -> None:
    run([*filled_in(behind(shape=counted, mode="update"), "jobs:counted"), "--state", "beginning"], "--yes")
    # Delta adds rows: each epoch changed all three groups, whose counts are those of all rows until then.
    shown = Counter((id_, str(len(range(id_, upto, 3)))) for upto in (5, 10, 15, 20) for id_ in range(3))
    assert Counter(delta.rows("id", "word")) == shown
    assert pg.ids() == [0, 1, 2]
    stream.run(
        exactly_once(pg.sink(key="id"), delta.sink(), storage=Storage(ledger=ledger)), shape=counted, mode="update"
    )
    assert counted_in_delta(ledger, 15, "--deep") == "CANNOT TELL"


@pytest.mark.slow
def test_what_before_made_of_rows_is_made_of_them_again(behind, stream, pg, delta, ledger) -> None:
    def shouted(rows):
        return rows.withColumn("word", f.upper("word"))

    rewind = filled_in(behind(transform=shouted), "jobs:stream")
    assert "[ONCE-E233]" in refused(rewind, "--yes")
    run([*rewind, "--transform", "jobs:shouted"], "--yes")
    stream.run(exactly_once(pg.sink(key="id"), delta.sink(), storage=Storage(ledger=ledger), transform=shouted))
    assert counted_in_delta(ledger, 25, "--deep") == "CANNOT TELL"
