"""Ids in a table of Postgres: what executors are told of them as of an epoch, and when old ones leave."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import run, there
from tests.sinks.test_postgres_tombstones import At
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import OnceOnlyError
from onceonly.protocol.batch import AsOf
from onceonly_checkpoints import chain
from onceonly_checkpoints.model import Adoption, AdoptionKind

pytestmark = pytest.mark.postgres

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_123


class Keeper(At):
    """Writes ids at a time that the test sets."""

    def __init__(self, dsn: str, **said: Any) -> None:
        super().__init__(dsn, "seen", keeps="1 hour", **said)
        self.clock_ms = BEGIN_MS

    def keep(self, *numbers: int) -> None:
        at = pa.array([self.clock_ms * 1000] * len(numbers), pa.timestamp("us", "UTC"))
        self.write(pa.table({"id": pa.array(map(named, numbers), pa.binary()), "at": at}))

    def asked(self, numbers: Sequence[int], epoch: int, clock_ms: int, series: int = 1) -> set[int]:
        """Which ids are known, as an executor is told that got the question in a task."""
        lookup = pickle.loads(pickle.dumps(self.sink.lookup(AsOf(series, epoch, clock_ms))))
        half = len(numbers) // 2
        pieces = [[], [*map(named, numbers[:half])], [], [*map(named, numbers[half:])]]
        return {int.from_bytes(one, "big") for known in lookup(iter(pieces)) for one in known}


def named(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_before_the_first_epoch_no_id_is_known_and_nothing_is_made(dsn: str) -> None:
    with Keeper(dsn) as keeper:
        assert keeper.asked(range(5), 1, BEGIN_MS) == set()
        assert not there(dsn, "seen")
        assert list(keeper.sink.lookup(AsOf(1, 1, 0))(iter([[], [named(1)]]))) == [frozenset(), frozenset()]


@pytest.mark.parametrize("via", BOTH_WAYS)
def test_an_id_is_known_to_later_epochs_for_its_time_and_to_no_earlier_one(dsn: str, via: str) -> None:
    with Keeper(dsn, load=via) as keeper:
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


def test_old_ids_leave_twice_as_fast_as_new_ones_come(dsn: str) -> None:
    def held() -> int:
        return int(run(dsn, "SELECT count(*) FROM seen")[0][0])

    with Keeper(dsn) as keeper:
        keeper.keep(*range(30_000))
        keeper.clock_ms += HOUR_MS
        keeper.keep(30_000)
        assert held() == 30_001, "to the millisecond an hour old: still known"
        keeper.clock_ms += 1
        keeper.keep(30_001)
        assert held() == 20_002
        assert keeper.asked(range(30_000), 4, keeper.clock_ms) == set(), "those that are still there are not known"
        keeper.keep(*range(40_000, 48_000))
        assert held() == 20_002 + 8_000 - 16_000
        keeper.keep()
        assert held() == 12_002, "an epoch without rows forgets nothing"


def test_an_id_that_comes_again_after_its_time_takes_the_place_of_its_old_row(dsn: str) -> None:
    with Keeper(dsn) as keeper:
        keeper.keep(1)
        keeper.clock_ms += 2 * HOUR_MS
        keeper.keep(1)
        clock = datetime.fromtimestamp(keeper.clock_ms / 1000, timezone.utc)
        assert run(dsn, "SELECT id, at, _epoch FROM seen") == [(named(1), clock, 2)]


def test_the_table_that_is_made_finds_old_rows_by_an_index(dsn: str) -> None:
    with Keeper(dsn) as keeper:
        keeper.keep(1)
    made = run(dsn, "SELECT indexdef FROM pg_indexes WHERE tablename = 'seen' ORDER BY 1")
    assert [line.partition("USING ")[2] for (line,) in made] == ["btree (at)", "btree (id)"]


def test_what_is_asked_in_vain_is_said_in_our_words(dsn: str) -> None:
    with Keeper(dsn) as keeper:
        keeper.keep(1)
        lookup = keeper.sink.lookup(AsOf(1, 2, BEGIN_MS))
        run(dsn, "DROP TABLE seen")
        with pytest.raises(OnceOnlyError) as refused:
            list(lookup(iter([[named(1)]])))
    assert refused.value.code.startswith("E5")
    assert "postgres:seen" in str(refused.value)


def test_ids_of_the_newest_epoch_that_brought_some_are_looked_for_when_it_opens_and_all_young_ones_counted(
    dsn: str,
) -> None:
    def disturbed() -> set[str]:
        """What an opening and an audit are told."""
        told = (*keeper.sink.external_changes(None), *keeper.sink.position(None).disturbances)
        assert all(event.fatal and event.kind == "deleted" for event in told)
        return {event.detail for event in told}

    with Keeper(dsn) as keeper:
        keeper.keep(1, 2, 3)
        keeper.clock_ms += HOUR_MS // 2
        keeper.keep(4, 5)
        keeper.keep()
        assert (disturbed(), keeper.sink.recount()) == (set(), {1: 3, 2: 2})
        run(dsn, "DELETE FROM seen WHERE id = %s", named(1))
        assert (disturbed(), keeper.sink.recount()) == (set(), {1: 2, 2: 2}), "by the audit alone"
        run(dsn, "DELETE FROM seen WHERE id = %s", named(4))
        assert disturbed() == {"ids of epoch 2 are not there any more: 1 of 2"}
        run(dsn, "TRUNCATE seen")
        assert (disturbed(), keeper.sink.recount()) == ({"ids of epoch 2 are not there any more: 2 of 2"}, {})
        run(dsn, "DROP TABLE seen")
        assert keeper.sink.recount() == {}
        assert "ids of" not in str(keeper.sink.position(None).disturbances), "another table holds other ids"


def test_what_was_taken_from_a_table_of_ids_is_accepted_by_an_epoch_and_not_looked_for_again(dsn: str) -> None:
    with Keeper(dsn) as keeper:
        keeper.keep(1, 2)
        run(dsn, "TRUNCATE seen")
        assert keeper.sink.external_changes(None)
        plain = keeper.marker(0)
        accepted = Adoption(AdoptionKind.ACCEPT_CHANGE, (keeper.sink.id,))
        keeper.last = chain.linked(replace(plain.epoch, adoption=accepted, lineage=None))
        keeper.sink.commit(None, replace(plain, epoch=keeper.last))
        assert list(keeper.sink.external_changes(None)) == []
        keeper.keep(3)
        assert list(keeper.sink.external_changes(None)) == []
