"""Tombstones: within their time no late change brings a row back that a newer one removed, in any order."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres_writer import Writer, rows, run
from tests.sinks.variants import BOTH_WAYS

from onceonly.errors import ConfigurationError
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.chain import linked
from onceonly_sinks.postgres import Keep, PostgresSink, PostgresTuning, upsert
from onceonly_sinks.postgres.head import PostgresHeadScope as Ours

pytestmark = pytest.mark.postgres

KEYED: dict[str, Any] = {
    "key": ("shop", "id"),
    "sequence": "at",
    "delete_flag": "gone",
    "tuning": PostgresTuning(epoch_column=None),
}
Change = tuple[int, int, bool]
"""Id, place in the order of changes, and whether it removes."""


def batch(changes: list[Change], shop: str = "north") -> pa.Table:
    ids, order, gone = zip(*changes, strict=True) if changes else ((), (), ())
    return pa.table(
        {
            "shop": pa.array([shop] * len(changes), pa.string()),
            "id": pa.array(ids, pa.int64()),
            "at": pa.array(order, pa.int64()),
            "gone": pa.array(gone, pa.bool_()),
        }
    )


EPOCHS, SCHEDULES = 6, 200


def schedule(seed: int) -> list[list[Change]]:
    """Changes of three keys, each key's in an order of its own, come in any order and in several epochs."""
    draw = random.Random(seed)
    changes = [(one, order, draw.random() < 0.4) for one in range(3) for order in range(draw.randint(1, 6))]
    draw.shuffle(changes)
    epochs: list[list[Change]] = [[] for _ in range(EPOCHS)]
    for change in changes:
        epochs[draw.randrange(EPOCHS)].append(change)
    return epochs


def wanted(seed: int) -> list[tuple[str, int, int]]:
    newest: dict[int, Change] = {}
    for change in (one for epoch in schedule(seed) for one in epoch):
        if change[0] not in newest or change[1] > newest[change[0]][1]:
            newest[change[0]] = change
    return [(str(seed), one, order) for one, order, gone in newest.values() if not gone]


@pytest.mark.parametrize("via", BOTH_WAYS)
def test_the_newest_change_of_a_key_wins_in_whatever_order_changes_come(dsn: str, via: str) -> None:
    right = sorted(row for seed in range(SCHEDULES) for row in wanted(seed))
    for table, said in (("kept", {"keep": Keep(tombstones="7 days")}), ("lost", {})):
        run(dsn, f"CREATE TABLE {table} (shop text, id bigint, at bigint NOT NULL, PRIMARY KEY (shop, id))")
        with Writer(dsn, table, load=via, **KEYED, **said) as writer:
            for epoch in range(EPOCHS):
                writer.write(pa.concat_tables(batch(schedule(seed)[epoch], str(seed)) for seed in range(SCHEDULES)))
    assert sorted(rows(dsn, "kept")) == right
    assert len({*rows(dsn, "lost")} - {*right}) > SCHEDULES // 10, "without tombstones too few schedules go wrong"


def held(dsn: str, table: str = "target") -> list[tuple[Any, ...]]:
    name = upsert.relation(Ours("orders", f"postgres:{table}"))
    return sorted(run(dsn, f'SELECT id, at, "{upsert.EPOCH}" FROM {name}'))


class At(Writer):
    """Writes epochs at a time that the test sets."""

    clock_ms = 0

    def marker(self, rows: int, adoption: str | None = None) -> Any:
        made = super().marker(rows, adoption)
        assert made.epoch.lineage is not None
        lineage = replace(made.epoch.lineage, batch_timestamp_ms=self.clock_ms)
        return replace(made, epoch=replace(made.epoch, lineage=lineage))


def made(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (shop text, id bigint, at bigint NOT NULL, PRIMARY KEY (shop, id))")


def test_a_tombstone_goes_with_a_newer_row_and_by_the_clock_of_epochs(dsn: str) -> None:
    made(dsn)
    with At(dsn, tombstones="1 hour", **KEYED) as writer:
        writer.clock_ms = 1_000_000_000_000
        writer.write(batch([(1, 5, True), (2, 5, True), (3, 9, False), (3, 7, True)]))
        # The row of key 3 is newer than what would remove it, so that needs no stone.
        assert held(dsn) == [(1, 5, 1), (2, 5, 1)]
        writer.write(batch([(1, 4, False), (2, 6, False)]))
        assert [(row[1], row[2]) for row in rows(dsn)] == [(2, 6), (3, 9)]
        assert held(dsn) == [(1, 5, 1)]
        writer.clock_ms += 3_600_000
        writer.write(batch([(4, 1, True)]))
        assert held(dsn) == [(1, 5, 1), (4, 1, 3)]
        writer.clock_ms += 1
        writer.write(batch([(5, 1, True)]))
        assert held(dsn) == [(4, 1, 3), (5, 1, 4)]
        writer.clock_ms -= 7_200_000
        writer.write(batch([(1, 4, False)]))
        assert (1, 4) in [(row[1], row[2]) for row in rows(dsn)], "its time is over, so the late change brings it back"
        assert held(dsn) == [(4, 1, 3), (5, 1, 4)], "a clock that goes back forgets nothing"


def test_what_was_removed_is_rolled_back_with_its_epoch(dsn: str) -> None:
    made(dsn)
    with Writer(dsn, tombstones="7 days", **KEYED) as writer:
        writer.write(batch([(1, 1, False)]))
        writer.prepare(batch([(1, 5, True)])).abandon()
        writer.write(batch([(1, 3, False)]))
    assert [(row[1], row[2]) for row in rows(dsn)] == [(1, 3)]
    assert held(dsn) == []


@pytest.mark.parametrize("via", BOTH_WAYS)
def test_a_full_refresh_forgets_what_was_removed_before_it(dsn: str, via: str) -> None:
    with Writer(
        dsn, load=via, tombstones="7 days", **{**KEYED, "tuning": PostgresTuning(epoch_column="auto")}
    ) as writer:
        writer.write(batch([(1, 5, True), (2, 1, False)]))
        assert held(dsn) == [(1, 5, 1)]
        prepared = writer.sink.prepare_replacement(ArrowBatch(batch([(1, 3, False), (3, 4, True)])), 2, (1, 1))
        marker = writer.marker(prepared.rows)
        replacing = linked(replace(marker.epoch, series=2, replaces=(1, 1)))
        writer.sink.commit(prepared, replace(marker, epoch=replacing))
    assert [(row[1], row[2]) for row in rows(dsn)] == [(1, 3)], "the source tells it anew, from its beginning"
    assert held(dsn) == [(3, 4, 2)]


def test_what_is_due_goes_a_part_at_a_time(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "_AT_ONCE", 2)
    made(dsn)
    with At(dsn, tombstones="1 second", **KEYED) as writer:
        for moment in range(3):
            writer.clock_ms = moment
            writer.write(batch([(moment, 5, True)]))
        writer.clock_ms = 10_000
        writer.write(batch([(9, 5, True)]))
    assert [one[0] for one in held(dsn)] == [2, 9], "the oldest first"


def test_an_address_says_for_how_long(dsn: str) -> None:
    sink = PostgresSink(dsn, "target", keep=Keep(tombstones="2 weeks"), **KEYED)
    again = PostgresSink.from_address(sink.address)
    assert again.address == sink.address
    assert "tombstones=2%20weeks" in sink.address


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"keep": Keep(tombstones="7 days")}, "without sequence= no change is late"),
        ({"key": "id", "sequence": "at", "keep": Keep(tombstones="7 days")}, "without delete_flag= nothing is removed"),
    ],
    ids=str,
)
def test_what_cannot_be_remembered_is_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match="E110") as refused:
        PostgresSink("postgresql://localhost/shop", "target", **said)
    assert problem in str(refused.value)
