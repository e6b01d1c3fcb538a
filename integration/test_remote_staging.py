"""Rows for several sinks staged in a store that is not this machine's disk: a real HDFS, beside the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.hdfs import small_hdfs
from integration.streams import FileStream
from integration.targets import DeltaTarget, PostgresTarget
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from onceonly import Storage, exactly_once, faults
from onceonly.faults import Point
from onceonly.runtime import operator
from onceonly.runtime.staged_files import directory
from onceonly_checkpoints.ledger.sql import SqlLedger

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

SINKS = 2


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with small_hdfs(tmp_path_factory.mktemp("hdfs") / "cluster") as root:
        yield root


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    faults.disarm()


Runs = Callable[..., None]


@pytest.fixture
def runs(stream: FileStream, hdfs: str, pg: PostgresTarget, delta: DeltaTarget, tmp_path: Path) -> Runs:
    """Runs the query over all files there are, with its checkpoint in HDFS."""

    def run(shape: Callable[[DataFrame], DataFrame] = lambda df: df) -> None:
        write = exactly_once(delta.sink(), pg.sink(), storage=Storage(ledger=tmp_path / "ledger.db"))
        writer = shape(stream.read()).writeStream.queryName("orders").foreachBatch(write)
        query = writer.option("checkpointLocation", f"{hdfs}/{tmp_path.name}/ck").trigger(availableNow=True).start()
        query.awaitTermination()

    return run


def staged(hdfs: str, tmp_path: Path) -> list[str]:
    above = directory(f"{hdfs}/{tmp_path.name}/ck.onceonly.staging")
    return [name for pipeline in above.names() for name in above.child(pipeline).names()]


def words(pg: PostgresTarget) -> list[tuple[int, str]]:
    return [(row[0], row[1]) for row in pg.says("select id, word from orders order by id")]


WORDS = [(number, f"w{number}") for number in range(30)]


def test_both_sinks_get_the_bytes_that_lie_beside_the_checkpoint(runs, stream, hdfs, pg, delta, tmp_path):
    stream.receive(range(10), range(10, 20), range(20, 30))
    runs()
    assert words(pg) == WORDS
    assert delta.ids() == list(range(30))
    [newest] = staged(hdfs, tmp_path)
    assert newest.startswith("e000000000003-")


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("by", ["the next start", "recover resolve, without Spark"])
def test_a_sink_left_behind_gets_the_old_bytes_from_there(by, runs, stream, pg, delta, tmp_path):
    stream.receive(range(10), range(10, 20), range(20, 30))
    faults.arm(Point.COMMIT_AFTER, "raise", SINKS + 1)
    with pytest.raises(Exception, match="armed with 'raise'"):
        runs()
    faults.disarm()
    assert (delta.ids(), len(words(pg))) == (list(range(20)), 10)
    if by != "the next start":
        with ExitStack() as open_until_here:
            ledger, *sinks = SqlLedger(str(tmp_path / "ledger.db")), delta.sink(), pg.sink()
            for one in (ledger, *sinks):
                open_until_here.callback(one.close)
            assert operator.resolve(sinks, ledger, "orders").epoch == 2
        assert words(pg) == WORDS[:20]
    runs(lambda df: df.withColumn("word", f.when(f.col("id") < 20, f.upper("word")).otherwise(f.col("word"))))
    assert words(pg) == WORDS
    assert delta.ids() == list(range(30))
