"""Tables of seen ids, in Postgres and in Delta: what executors are told as of an epoch, and when old ids leave."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.sinks.epochs import epoch_after
from tests.sinks.object_store import BUCKET, ObjectStore

from onceonly.errors import ConfigurationError, OnceOnlyError
from onceonly.protocol import Superseded
from onceonly.protocol.batch import ArrowBatch, AsOf
from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import Epoch, Fence, Marker
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.delta import DeltaSink
from onceonly_sinks.postgres import PostgresSink

PIPELINE = "orders"
HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_123


class Keeper:
    """Writes ids at a time that the test sets, and asks for some as an executor does."""

    def __init__(self, store: Any, generation: int = 1) -> None:
        self.sink, self.clock_ms = store.seen_ids_store(3600), BEGIN_MS
        self.fence = Fence(generation, f"owner-{generation}")
        self.sink.open(PIPELINE)
        self.sink.install(self.fence)
        marker = self.sink.position(None).marker
        self.last: Epoch | None = marker.epoch if marker else None

    def keep(self, *numbers: int) -> None:
        at = pa.array([self.clock_ms * 1000] * len(numbers), pa.timestamp("us", "UTC"))
        rows = pa.table({"id": pa.array(map(named, numbers), pa.binary()), "at": at})
        epoch = epoch_after(self.last, self.sink.id, len(numbers))
        assert epoch.lineage is not None
        epoch = chain.linked(replace(epoch, lineage=replace(epoch.lineage, batch_timestamp_ms=self.clock_ms)))
        self.commit(epoch, self.sink.prepare(ArrowBatch(rows), epoch.number))

    def commit(self, epoch: Epoch, prepared: Any) -> None:
        self.sink.commit(prepared, Marker(PIPELINE, self.sink.id, self.fence, epoch))
        self.last = epoch

    def lookup(self, epoch: int, clock_ms: int, series: int = 1) -> Any:
        return pickle.loads(pickle.dumps(self.sink.lookup(AsOf(series, epoch, clock_ms))))

    def asked(self, numbers: Sequence[int], epoch: int, clock_ms: int, series: int = 1) -> set[int]:
        """Which ids are known, as an executor is told that got the question in a task."""
        half = len(numbers) // 2
        pieces = [[], [*map(named, numbers[:half])], [], [*map(named, numbers[half:])]]
        told = list(self.lookup(epoch, clock_ms, series)(iter(pieces)))
        assert [known <= {*piece} for known, piece in zip(map(set, told), pieces, strict=True)] == [True] * 4
        return {int.from_bytes(one, "big") for known in told for one in known}


def named(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), "delta"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    if request.param == "delta":
        return lambda: DeltaSink(tmp_path / "seen")
    dsn: str = request.getfixturevalue("dsn")
    return lambda: PostgresSink(dsn, "seen")


@pytest.fixture
def keeper(store: Callable[[], Any]) -> Iterator[Keeper]:
    made = Keeper(store())
    yield made
    made.sink.close()


def test_before_the_first_epoch_no_id_is_known(keeper: Keeper) -> None:
    assert keeper.asked(range(5), 1, BEGIN_MS) == set()
    assert list(keeper.lookup(1, 0)(iter([[], [named(1)]]))) == [frozenset(), frozenset()]


def test_an_id_is_known_to_later_epochs_for_its_time_and_to_no_earlier_one(keeper: Keeper) -> None:
    keeper.keep(1, 2)
    keeper.clock_ms += HOUR_MS // 2
    keeper.keep(3)
    everything = range(5)
    assert keeper.asked(everything, 3, keeper.clock_ms) == {1, 2, 3}
    assert keeper.asked(everything, 2, keeper.clock_ms) == {1, 2}, "the epoch that brought 3 is computed again"
    assert keeper.asked(everything, 1, keeper.clock_ms) == set()
    assert keeper.asked(everything, 3, BEGIN_MS + HOUR_MS) == {1, 2, 3}
    assert keeper.asked(everything, 3, BEGIN_MS + HOUR_MS + 1) == {3}
    assert keeper.asked(everything, 3, keeper.clock_ms, series=2) == {3}, "a full refresh began with epoch 2"
    assert keeper.asked(everything, 3, BEGIN_MS - HOUR_MS) == {1, 2, 3}, "a clock that went back forgets nothing"


def test_what_is_known_is_what_a_dictionary_says_in_any_order_of_epochs(keeper: Keeper) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    known: dict[int, int] = {}
    for epoch in range(1, 60):
        keeper.clock_ms += draw.randrange(HOUR_MS // 2)
        offered = {draw.randrange(60) for _ in range(12)}
        wanted = {one for one in offered if one in known and keeper.clock_ms - known[one] <= HOUR_MS}
        assert keeper.asked([*offered], epoch, keeper.clock_ms) == wanted
        keeper.keep(*sorted(offered - wanted))
        known |= dict.fromkeys(offered - wanted, keeper.clock_ms)
        again = keeper.asked([*offered], epoch, keeper.clock_ms)
        assert again == wanted, "the epoch stands, and is computed again"
    counted = sum(1 for at in known.values() if keeper.clock_ms - at <= HOUR_MS)
    assert sum(keeper.sink.recount().values()) == counted


def test_ids_that_are_too_old_are_not_counted_whether_they_have_left_or_not(keeper: Keeper) -> None:
    keeper.keep(*range(20_001))
    keeper.clock_ms += HOUR_MS + 1
    keeper.keep(30_000)
    assert keeper.sink.total().rows >= 10_002, "of the old ones some are there still"
    assert keeper.sink.recount() == {2: 1}
    expired = keeper.sink.expired_rows()
    assert expired is not None
    gone = [expired.gone(marker.epoch, marker.epoch.digest.rows) for marker, _ in keeper.sink.history()]
    assert gone == [20_001, 0]
    keeper.clock_ms -= 2 * HOUR_MS
    keeper.keep(40_000)
    assert keeper.sink.recount() == {2: 1}, "a clock that goes back brings none of them back, and is old itself"
    assert list(keeper.sink.external_changes(None)) == []


def test_ids_are_found_again_by_the_address_of_their_table(keeper: Keeper) -> None:
    keeper.keep(1, 2)
    keeper.clock_ms += 2 * HOUR_MS
    keeper.keep(3)
    found = type(keeper.sink).from_address(keeper.sink.address)
    found.open(PIPELINE)
    assert (found.address, found.id, found.recount()) == (keeper.sink.address, keeper.sink.id, {2: 1})
    found.close()


def test_a_newer_driver_fences_the_writer_of_ids(store: Callable[[], Any], keeper: Keeper) -> None:
    keeper.keep(1)
    newer = Keeper(store(), generation=2)
    newer.keep(2)
    with pytest.raises(Superseded):
        keeper.keep(3)
    assert newer.asked(range(4), 3, BEGIN_MS) == {1, 2}
    newer.sink.close()


def test_what_is_accepted_by_an_epoch_is_not_looked_for_again(keeper: Keeper) -> None:
    keeper.keep(1, 2)
    accepted = Adoption(AdoptionKind.ACCEPT_CHANGE, (keeper.sink.id,))
    plain = epoch_after(keeper.last, keeper.sink.id, 0)
    keeper.commit(chain.linked(replace(plain, adoption=accepted, lineage=None)), None)
    keeper.keep(3)
    assert (list(keeper.sink.external_changes(None)), keeper.sink.recount()) == ([], {1: 2, 3: 1})


# ---- in Delta alone


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Keeper]:
    made = Keeper(DeltaSink(tmp_path / "seen"))
    yield made
    made.sink.close()


def at(keeper: Keeper) -> DeltaTable:
    return DeltaTable(keeper.sink.place().removeprefix("delta:"))


def test_old_ids_leave_with_the_first_epoch_of_a_driver_and_with_every_fiftieth_and_files_stay_few(
    lake: Keeper, tmp_path: Path
) -> None:
    for number in range(49):
        lake.keep(number)
        lake.clock_ms += HOUR_MS // 10
    assert (at(lake).to_pyarrow_table().num_rows, len(at(lake).file_uris())) == (49, 49)
    lake.keep(49)
    assert (at(lake).to_pyarrow_table().num_rows, len(at(lake).file_uris())) == (50, 1), "put together"
    lake.keep(50)
    assert sorted(at(lake).to_pyarrow_table()["_epoch"].to_pylist()) == [*range(40, 52)], "older than an hour is gone"
    newer = Keeper(DeltaSink(tmp_path / "seen"), generation=2)
    newer.clock_ms = lake.clock_ms + 2 * HOUR_MS
    newer.keep()
    assert at(lake).to_pyarrow_table().num_rows == 12, "an epoch without ids forgets none"
    newer.keep(60)
    assert at(lake).to_pyarrow_table()["_epoch"].to_pylist() == [53]
    assert list(newer.sink.external_changes(None)) == [], "it is no change by another writer"
    newer.sink.close()


def test_files_whose_ids_are_all_too_old_or_of_later_epochs_are_not_opened(lake: Keeper) -> None:
    lake.keep(1)
    lake.clock_ms += HOUR_MS
    lake.keep(2)
    lake.keep(3)
    assert [len(lake.lookup(epoch, lake.clock_ms).files) for epoch in (1, 2, 3, 4)] == [0, 1, 2, 3]
    assert len(lake.lookup(4, lake.clock_ms + 2).files) == 2, "statistics are of whole milliseconds"


def test_an_executor_without_deltalake_looks_ids_up(lake: Keeper) -> None:
    lake.keep(1, 2)
    lookup = lake.sink.lookup(AsOf(1, 2, BEGIN_MS))
    program = """
import pickle, sys
sys.modules["deltalake"] = None
lookup = pickle.loads(bytes.fromhex(sys.argv[1]))
print(*map(sorted, lookup(iter([[(2).to_bytes(16, "big"), (3).to_bytes(16, "big")]]))))
"""
    said = subprocess.run([sys.executable, "-c", program, pickle.dumps(lookup).hex()], capture_output=True, check=True)
    assert said.stdout.decode().strip() == str([named(2)])


@pytest.mark.parametrize("kind", ["deleted", "appended"])
def test_ids_that_somebody_took_or_added_stop_the_query(lake: Keeper, kind: str) -> None:
    lake.keep(1, 2)
    if kind == "deleted":
        at(lake).delete("_epoch = 1")
    else:
        write_deltalake(at(lake), at(lake).to_pyarrow_table(), mode="append")
    assert [event.kind for event in lake.sink.external_changes(None)] == [kind]
    with pytest.raises(OnceOnlyError, match=r"ONCE-E209"):
        lake.keep(3)


def test_a_data_file_that_is_gone_stops_the_query_by_name(lake: Keeper, tmp_path: Path) -> None:
    lake.keep(1)
    lookup = lake.lookup(2, BEGIN_MS)
    for path in (tmp_path / "seen").glob("*.parquet"):
        path.unlink()
    for asked in (lambda: list(lookup(iter([[named(1)]]))), lake.sink.recount):
        with pytest.raises(OnceOnlyError, match=r"ONCE-E508[\s\S]*delta:seen[\s\S]*restore it from a backup"):
            asked()


def test_a_table_of_ids_has_options_and_columns_of_its_own(tmp_path: Path) -> None:
    given: tuple[dict[str, Any], ...] = ({"key": "id"}, {"schema": "add_columns"}, {"partition_by": "id"})
    for options in given:
        with pytest.raises(ConfigurationError, match=r"ONCE-E122[\s\S]*store=DeltaSink\('.*/seen'\)"):
            DeltaSink(tmp_path / "seen", **options).seen_ids_store(60)
    theirs = DeltaSink(tmp_path / "seen", id="theirs").seen_ids_store(60)
    assert (theirs.id, DeltaSink.from_address(theirs.address).address) == ("theirs", theirs.address)
    write_deltalake(tmp_path / "other", pa.table({"id": [1], "at": [2]}).slice(0, 0))
    other = Keeper(DeltaSink(tmp_path / "other"))
    with pytest.raises(OnceOnlyError, match=r"ONCE-E506[\s\S]*ids need id, at, _epoch and no partitions"):
        other.asked([1], 1, BEGIN_MS)
    other.sink.close()


def test_ids_in_an_object_store_are_looked_up_by_the_options_of_the_sink() -> None:
    with ObjectStore() as bucket:
        keeper = Keeper(DeltaSink(f"s3://{BUCKET}/seen", storage_options=bucket.options))
        keeper.keep(1, 2)
        keeper.clock_ms += HOUR_MS // 2
        keeper.keep(3)
        assert keeper.asked(range(5), 3, keeper.clock_ms) == {1, 2, 3}
        assert keeper.asked(range(5), 3, keeper.clock_ms + HOUR_MS // 2 + 2) == {3}
        assert keeper.sink.recount() == {1: 2, 2: 1}
        keeper.sink.close()
