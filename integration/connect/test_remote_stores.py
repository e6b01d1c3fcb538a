"""Checkpoint and staged rows on Spark Connect in a store: a real HDFS, reached by fsspec, too, or by Spark alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pytest
from integration.connect.client import Wish, fired, strike, wish
from integration.connect.streams import ConnectStream
from integration.hdfs import Reaching, small_hdfs
from integration.targets import DeltaTarget, PostgresTarget, events
from pyspark.sql import DataFrame, SparkSession

from onceonly import Storage
from onceonly.faults import Point
from onceonly.runtime.staged_files import directory
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger

pytestmark = [pytest.mark.connect, pytest.mark.postgres]


def reached_and_struck(reach: Reaching, folder: str, df: DataFrame) -> DataFrame:
    return strike(folder, "orders", reach(df))


class FarStream(ConnectStream):
    """As ``ConnectStream``, with its checkpoint in a store.

    Args:
        spark: of Spark Connect.
        root: a directory of its own, for the input.
        store: URL of the store.
    """

    def __init__(self, spark: SparkSession, root: Path, store: str) -> None:
        super().__init__(spark, root)
        self.folder = f"{store}/{root.name}"
        self.checkpoint: Any = f"{self.folder}/ck"

    def names(self, place: str) -> tuple[str, ...]:
        return directory(f"{self.folder}/{place}").names()

    def remove(self, log: str, *numbers: int) -> None:
        files, path = fsspec.core.url_to_fs(f"{self.checkpoint}/{log}")
        for number in numbers:
            files.rm(f"{path}/{number}")


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with small_hdfs(tmp_path_factory.mktemp("hdfs") / "cluster") as root:
        yield root


@pytest.fixture
def reaching(hdfs: str) -> Reaching:
    """Brings the driver of fsspec to the worker."""
    files, _ = fsspec.core.url_to_fs(hdfs)
    return Reaching(int(urlsplit(files.url).port or 0))


@pytest.fixture
def far(remote: SparkSession, hdfs: str, tmp_path: Path) -> FarStream:
    return FarStream(remote, tmp_path, hdfs)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where the ledger lies."""
    return str(tmp_path / "ledger.db")


def test_a_checkpoint_that_only_spark_reaches_is_read_by_spark(
    far: FarStream, delta: DeltaTarget, ledger: SqlLedger, place: str
) -> None:
    far.receive(range(10), range(10, 20)).write(delta.sink(), storage=Storage(ledger=place))
    far.remove("commits", 1)
    far.receive(range(20, 30)).write(delta.sink(), storage=Storage(ledger=place))
    assert delta.ids() == [*range(30)]
    assert len(events(ledger, EventKind.SKIPPED)) == 1


def test_both_sinks_get_the_rows_that_lie_in_the_store_whoever_dies_between_them(
    far: FarStream, reaching: Reaching, pg: PostgresTarget, delta: DeltaTarget, place: str, tmp_path: Path
) -> None:
    wishes = tmp_path / "wishes"
    wishes.mkdir()
    options = {"storage": Storage(ledger=place), "transform": partial(reached_and_struck, reaching, str(wishes))}
    far.receive(range(10), range(10, 20)).write(pg.sink(), delta.sink(), **options)
    wish(wishes, "orders", Wish(1, "worker", str(Point.COMMIT_AFTER)))
    with pytest.raises(Exception, match="crashed"):
        far.receive(range(20, 30)).write(pg.sink(), delta.sink(), **options)
    assert len(fired(wishes)) == 1
    assert (pg.ids(), delta.ids()) == ([*range(30)], [*range(20)])
    far.write(pg.sink(), delta.sink(), **options)
    assert pg.ids() == delta.ids() == [*range(30)]
    [of_these_sinks] = far.names("ck.onceonly.staging")
    [newest] = far.names(f"ck.onceonly.staging/{of_these_sinks}")
    assert newest.startswith("e000000000003-")


def test_rows_cannot_be_staged_where_only_spark_reaches_them(
    far: FarStream, pg: PostgresTarget, delta: DeltaTarget, place: str
) -> None:
    found = far.receive(range(10)).refused(pg.sink(), delta.sink(), storage=Storage(ledger=place))
    assert (found.code, "ck.onceonly.staging" in found.what) == ("E114", True)
    assert "driver of fsspec" in found.next
    assert not Path(delta.path).exists()


def test_a_ledger_beside_a_checkpoint_in_a_store_is_refused(far: FarStream, delta: DeltaTarget) -> None:
    assert far.receive(range(10)).refused(delta.sink()).code == "E107"
