"""Ids that were seen, in a Delta table: a lake alone, without a database, lets no row through twice."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from integration.printed import obey
from integration.streams import FileStream
from integration.targets import DeltaTarget
from integration.test_dedupe import DAY_MS, MONDAY_MS, on_days
from integration.test_refresh import FLOW

from onceonly import Dedupe, Quality, Recovery, Storage, exactly_once, faults
from onceonly.audit import Verdict, audit
from onceonly.faults import Point
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.memory import MemorySink, MemoryStore

pytestmark = pytest.mark.spark


class Lake:
    """A table of rows, and one of ids."""

    def __init__(self, root: Path) -> None:
        self.rows, self.seen, self.ledger = DeltaTarget(str(root / "orders")), root / "seen", root / "ledger.db"

    def dedupe(self, key: str = "id") -> Dedupe:
        return Dedupe(key=key, within="7 days", store=DeltaSink(self.seen))

    def write(self, *also: Any, **more: Any) -> Any:
        storage = more.pop("storage", Storage(ledger=self.ledger))
        return exactly_once(self.rows.sink(), *also, dedupe=self.dedupe(), storage=storage, **more)

    def held(self) -> list[tuple[Any, ...]]:
        """Epochs of the ids that are there."""
        return sorted(DeltaTarget(str(self.seen)).rows("_epoch"))

    def proven(self, *also: Any) -> list[Any]:
        """Demand that all is exactly once; returns the epochs."""
        ledger = SqlLedger(str(self.ledger))
        ledger.open()
        judged = [self.rows.sink(), self.dedupe().keeper, *also]
        found = audit(ledger, "orders", judged)
        epochs = [record.epoch for record in ledger.epochs("orders")]
        for sink in judged:
            sink.close()
        ledger.close()
        assert found.verdict is Verdict.EXACTLY_ONCE, [str(finding) for finding in found.findings]
        return epochs


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_row_that_comes_again_in_its_batch_or_a_later_one_reaches_no_sink(stream: FileStream, lake: Lake) -> None:
    stream.receive([1, 2, 2, 3, 3, 3], [3, 4], [1, 4, 5, 5]).run(lake.write())
    assert (lake.rows.ids(), lake.held()) == ([1, 2, 3, 4, 5], [(1,)] * 3 + [(2,), (3,)])
    counted = [(epoch.digest.rows, epoch.repeated.rows) for epoch in lake.proven()]
    assert counted == [(3, 3), (1, 1), (1, 3)]
    assert "seen" in lake.write().explain(stream.read())


def test_an_id_leaves_after_its_time_and_may_come_again(stream: FileStream, lake: Lake) -> None:
    on_days(stream, [(0, [1, 2]), (6, [1, 3]), (7, [2, 3]), (7.5, [1, 2, 3])], lake.write())
    assert lake.rows.ids() == [1, 1, 2, 2, 3]
    assert [epoch.lineage.batch_timestamp_ms for epoch in lake.proven()][-1] == MONDAY_MS + int(7.5 * DAY_MS)
    stream.receive([9]).run(lake.write())
    assert lake.held() == [(5,)], "what a new driver writes first takes the old ones along"
    lake.proven()


def test_a_bad_row_is_not_remembered_so_the_mended_one_comes_through(stream: FileStream, lake: Lake) -> None:
    aside = DeltaTarget(f"{lake.seen}-bad")

    def write(expected: str) -> Any:
        return lake.write(quality=Quality(expect={"word": expected}, quarantine=aside.sink()))

    stream.receive([1, 2, 2]).run(write("word <> 'w2'"))
    stream.receive([1, 2, 2]).run(write("true"))
    assert (lake.rows.ids(), aside.table.to_pyarrow_table().num_rows) == ([1, 2], 2)
    lake.proven(aside.sink())


@pytest.mark.slow
def test_executors_and_the_driver_let_the_same_rows_through(stream: FileStream, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    files = [[draw.randrange(400) for _ in range(300)] for _ in range(3)]
    columns = "id % 100 AS event", "id", "if(id % 7 = 0, null, word) AS word", "id / 3D AS share"
    found = []
    for way in ("driver", "executors"):
        lake, other = Lake(tmp_path / way), FileStream(stream.spark, tmp_path / way, name="orders")
        staging = {"staging": stream.root / "staging"} if way == "executors" else {}
        write = exactly_once(
            lake.rows.sink(),
            dedupe=lake.dedupe("event"),
            transform=lambda df: df.selectExpr(*columns),
            storage=Storage(ledger=lake.ledger, **staging),
        )
        other.receive(*files).run(write)
        found.append(sorted(lake.rows.rows("id", "word"), key=str))
    assert found[0] == found[1]
    assert len(found[0]) == len({number % 100 for numbers in files for number in numbers})


# ---- sinks that are behind, and what was lost


def died() -> None:
    raise RuntimeError("died between two commits")


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("staged", [True, False], ids=["staged", "computed again"])
def test_an_epoch_that_only_some_of_the_tables_hold_is_finished_with_the_same_rows(
    stream: FileStream, lake: Lake, after: int, staged: bool
) -> None:
    store = MemoryStore()

    def write() -> Any:
        return lake.write(MemorySink(id="memory:all", store=store))

    stream.receive([1, 2]).run(write())
    faults.arm(Point.COMMIT_AFTER, died, after)
    assert "died between" in stream.receive([2, 3, 3, 4]).fail(write())
    faults.disarm()
    if not staged:
        for place in stream.root.glob("*.staging"):
            shutil.rmtree(place)
    stream.receive([1, 4, 5]).run(write())
    assert lake.rows.ids() == sorted(row["id"] for row in MemorySink(id="memory:all", store=store).rows())
    assert (lake.rows.ids(), lake.held()) == ([1, 2, 3, 4, 5], [(1,), (1,), (2,), (2,), (3,)])


@pytest.mark.slow
def test_ids_that_somebody_deleted_stop_the_query_with_what_helps(stream: FileStream, lake: Lake) -> None:
    stream.receive([1, 2]).run(lake.write())
    DeltaTarget(str(lake.seen)).table.delete("_epoch = 1")
    said = stream.receive([2, 3]).fail(lake.write())
    assert "[ONCE-E209]" in said
    assert lake.rows.ids() == [1, 2]
    obey(said, "--accept-change")
    stream.run(lake.write())
    assert lake.rows.ids() == [1, 2, 2, 3], "as it was accepted"


@pytest.mark.slow
def test_a_full_refresh_brings_every_row_again_and_forgets_what_was_known(stream: FileStream, lake: Lake) -> None:
    stream.checkpoint = stream.root / FLOW / "0"
    stream.receive([1, 2, 2], [2, 3]).run(lake.write(recovery=Recovery(on_refresh="replace")))
    stream.checkpoint = stream.root / FLOW / "1"
    stream.run(lake.write(recovery=Recovery(on_refresh="replace")))
    assert (lake.rows.ids(), lake.held()) == ([1, 2, 3], [(3,), (3,), (4,)])
    assert [epoch.repeated.rows for epoch in lake.proven()] == [1, 1, 1, 1]
