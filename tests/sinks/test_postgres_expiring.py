"""Rows that are older than their time go with the epochs, oldest first; an audit excuses these, and no other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from tests.sinks.postgres_writer import Writer, orders, run

from onceonly.audit import Verdict, audit
from onceonly.errors import DestinationError
from onceonly.protocol.batch import ArrowBatch
from onceonly.protocol.values import ExpiredRows
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.epoch import Epoch, Marker
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.postgres import PostgresSink, expiry

pytestmark = pytest.mark.postgres

KEEP_MS = 10_000


class Keeping(Writer):
    """A writer whose epochs have a clock of their own, in milliseconds, and whose sink keeps rows for a time."""

    def __init__(self, dsn: str, keep_ms: int = KEEP_MS, **options: Any) -> None:
        self.keep_ms, self.clock = keep_ms, 0
        super().__init__(dsn, **options)

    def _opens(self) -> Epoch | None:
        if self.keep_ms:
            self.sink.expire_after(self.keep_ms)
        return super()._opens()

    def marker(self, rows: int, adoption: str | None = None) -> Marker:
        marker = super().marker(rows, adoption)
        assert marker.epoch.lineage is not None
        lineage = replace(marker.epoch.lineage, batch_timestamp_ms=self.clock)
        return replace(marker, epoch=linked(replace(marker.epoch, lineage=lineage)))

    def at(self, clock: int, *ids: int) -> Keeping:
        """Write an epoch at a time; without rows a marker alone."""
        self.clock = clock
        self.write(orders(*ids)) if ids else self.commit(None)
        return self


@pytest.fixture
def sink(dsn: str) -> Iterator[Keeping]:
    with Keeping(dsn) as writer:
        yield writer


def ids(dsn: str) -> list[int]:
    return [one for (one,) in run(dsn, "SELECT id FROM target ORDER BY id")]


def judged(dsn: str) -> Any:
    with closing(PostgresSink(dsn, "target")) as seen:
        found = audit(None, "orders", [seen])
    return found.verdict, [(finding.code, finding.epoch) for finding in found.findings if finding.code != "A131"]


CLEAN = (Verdict.EXACTLY_ONCE, [])


def test_rows_go_once_they_are_older_than_their_time_and_not_before(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1, 2).at(2_000, 3).at(11_000, 4)
    assert ids(dsn) == [1, 2, 3, 4]
    sink.at(11_001)
    assert ids(dsn) == [3, 4]
    assert sink.sink.expired_rows() == ExpiredRows(1, 2, 2, 1_001)
    assert judged(dsn) == CLEAN
    sink.at(50_000)
    assert ids(dsn) == []
    assert sink.sink.expired_rows() == ExpiredRows(3, 1, 4, 40_000)
    assert judged(dsn) == CLEAN
    assert run(dsn, "SELECT count(*) FROM onceonly.retention") == [(0,)]


def test_many_rows_go_in_several_epochs_and_an_audit_follows_them(sink: Keeping, dsn: str) -> None:
    many = expiry.AT_ONCE // 2 + 100
    for number in range(3):
        sink.at(1_000 + number, *range(many * number, many * (number + 1)))
    run(dsn, "UPDATE target SET note = 'later in the file' WHERE _epoch = 1")
    left = []
    for _ in range(3):
        sink.at(60_000)
        left.append(len(ids(dsn)))
        assert judged(dsn) == CLEAN
    assert left == [3 * many - expiry.AT_ONCE, 0, 0]


def test_an_epoch_may_have_more_rows_than_go_at_once(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, *range(2 * expiry.AT_ONCE + 5)).at(2_000, -1)
    left = []
    for _ in range(3):
        sink.at(60_000)
        left.append(len(ids(dsn)))
        assert judged(dsn) == CLEAN
    assert left == [expiry.AT_ONCE + 6, 6, 0]


def test_a_row_that_somebody_took_away_in_its_time_is_missing_whatever_went_by_its_age(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1, 2).at(20_000, 3, 4).at(21_000, 5)
    assert ids(dsn) == [3, 4, 5]
    run(dsn, "DELETE FROM target WHERE id = 4")
    assert judged(dsn) == (Verdict.GAPS, [("A121", 2)])


def test_a_record_that_says_more_than_was_due_excuses_nothing(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1, 2).at(20_000, 3, 4).at(21_000, 5)
    run(dsn, "DELETE FROM target WHERE id = 4")
    run(dsn, "UPDATE onceonly.expired SET epoch = 2, rows = 1, total = 3")
    assert judged(dsn) == (Verdict.GAPS, [("A121", 2)])


def test_a_clock_that_goes_back_keeps_rows_for_longer(sink: Keeping, dsn: str) -> None:
    sink.at(20_000, 1).at(5_000, 2).at(29_000, 3)
    assert ids(dsn) == [1, 2, 3]
    sink.at(31_000)
    assert ids(dsn) == [3]
    sink.at(145_000, 4).at(150_000, 5).at(112_000, 6).at(156_000)
    assert ids(dsn) == [5, 6]
    assert judged(dsn) == CLEAN


def test_rows_of_before_there_was_a_time_go_with_those_that_came_after_them(dsn: str) -> None:
    with Keeping(dsn, keep_ms=0) as writer:
        writer.at(1_000, 1).at(2_000, 2)
    with Keeping(dsn, generation=2) as writer:
        writer.at(3_000, 3).at(12_500)
        assert ids(dsn) == [1, 2, 3]
        writer.at(14_000, 4)
    assert ids(dsn) == [4]
    assert judged(dsn) == CLEAN
    with Keeping(dsn, keep_ms=0, generation=3) as writer:
        writer.at(90_000, 5)
    assert ids(dsn) == [4, 5]
    assert judged(dsn) == CLEAN


def test_rows_of_others_stay(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1)
    run(dsn, "INSERT INTO target VALUES (70, 'theirs', NULL), (71, 'theirs', -3)")
    sink.at(60_000)
    assert ids(dsn) == [70, 71]


def test_what_went_is_forgotten_with_a_full_refresh(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1).at(20_000, 2)
    prepared = sink.sink.prepare_replacement(ArrowBatch(orders(9)), 3, (1, 2))
    marker = sink.marker(1)
    replacing = linked(replace(marker.epoch, series=3, replaces=(1, 2)))
    sink.sink.commit(prepared, replace(marker, epoch=replacing))
    sink.last = replacing
    assert ids(dsn) == [9]
    assert sink.sink.expired_rows() is None
    assert judged(dsn) == CLEAN
    sink.at(40_000)
    assert ids(dsn) == []
    assert judged(dsn) == CLEAN


def test_an_epoch_that_is_taken_back_takes_back_what_went_with_it(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1, 2)
    sink.clock = 60_000
    nowhere = SqlLedger(dsn)  # its tables were never made, so the record that goes with the rows is refused
    with pytest.raises(DestinationError, match="ONCE-E511"):
        sink.write(orders(3), nowhere)
    nowhere.close()
    assert (ids(dsn), sink.sink.expired_rows()) == ([1, 2], None)
    sink.at(60_000, 3)
    assert ids(dsn) == [3]
    assert judged(dsn) == CLEAN


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
def test_whatever_the_epochs_rows_of_the_last_time_are_all_there_and_older_ones_go(dsn: str, seed: int) -> None:
    draw = random.Random(seed)
    clock, number, planned = 1_000, 0, dict[int, int]()
    with Keeping(dsn) as writer:
        for _ in range(25):
            clock += draw.choice((100, 700, 3_000, 9_000))
            rows = [number + one for one in range(draw.choice((0, 0, 1, 4)))]
            number += len(rows)
            writer.at(clock, *rows)
            planned.update(dict.fromkeys(rows, clock))
        there = set(ids(dsn)) if planned else set()
    assert there == {one for one, at in planned.items() if at >= clock - KEEP_MS}, f"seed {seed}"
    if planned:
        assert judged(dsn) == CLEAN, f"seed {seed}"


# ---- below a milestone


def test_rows_of_epochs_whose_markers_are_gone_are_compared_in_sum(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1, 2).at(2_000, 3).at(3_000, 4).at(12_500)
    assert ids(dsn) == [4]
    prune = "SELECT chain FROM onceonly.epoch WHERE epoch = 3"
    [[chain]] = run(dsn, prune)
    run(dsn, f"INSERT INTO onceonly.pruned VALUES ('orders', 'postgres:target', 3, '{chain}', 4, 0)")
    run(dsn, "DELETE FROM onceonly.epoch WHERE epoch < 4")
    assert judged(dsn) == (Verdict.EXACTLY_ONCE, [("A166", 3)])
    run(dsn, "DELETE FROM target WHERE id = 4")
    assert judged(dsn) == (Verdict.GAPS, [("A121", 3)])


# ---- what cannot be

PLAIN = "CREATE TABLE target (id bigint, note text, _epoch bigint)"
TABLES = {
    "no column of epochs": ("CREATE TABLE target (id bigint, note text)", {}, "carry no epoch"),
    "partitions": (
        f"{PLAIN} PARTITION BY LIST (note); CREATE TABLE target_all PARTITION OF target DEFAULT",
        {},
        "has partitions",
    ),
    "a key": (f"{PLAIN}; ALTER TABLE target ADD UNIQUE (id)", {"key": "id"}, "are replaced"),
    "somebody refers to it": (
        f"{PLAIN}; ALTER TABLE target ADD UNIQUE (id); CREATE TABLE other (id bigint REFERENCES target (id))",
        {},
        "foreign keys of other",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_whose_rows_cannot_go_by_their_age_is_refused_before_anything_is_written(dsn: str, case: str) -> None:
    statement, options, told = TABLES[case]
    run(dsn, statement)
    with pytest.raises(DestinationError, match="ONCE-E508") as refused:
        Keeping(dsn, **options)
    assert told in str(refused.value)
    assert run(dsn, "SELECT to_regnamespace('onceonly')") == [(None,)]


def test_the_column_that_a_refusal_asks_for_lets_rows_go(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text)")
    with pytest.raises(DestinationError) as refused:
        Keeping(dsn)
    [statement] = [line for line in str(refused.value).splitlines() if "ALTER TABLE" in line]
    run(dsn, statement.partition("Next: ")[2].partition(", and no")[0])
    with Keeping(dsn) as writer:
        writer.at(1_000, 1).at(60_000, 2)
    assert ids(dsn) == [2]


def test_a_role_without_the_right_to_delete_is_told_the_grant(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint, note text, _epoch bigint)")
    run(dsn, "CREATE SCHEMA onceonly")
    run(dsn, "DO $$ BEGIN CREATE ROLE keeper LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    run(dsn, "ALTER SCHEMA onceonly OWNER TO keeper")
    run(dsn, "GRANT SELECT, INSERT ON target TO keeper")
    keeper = make_conninfo(dsn, user="keeper")
    with pytest.raises(DestinationError, match="no DELETE") as refused:
        Keeping(keeper)
    [statement] = [line for line in str(refused.value).splitlines() if "GRANT DELETE" in line]
    run(dsn, f"{statement.partition('Next: ')[2].partition(', or')[0]} TO keeper")
    with Keeping(keeper) as writer:
        writer.at(1_000, 1).at(60_000, 2)
    assert ids(dsn) == [2]
    assert run(dsn, "SELECT count(*) FROM pg_indexes WHERE tablename = 'target'") == [(0,)]


def test_a_table_of_our_own_gets_an_index_by_which_old_rows_are_found(sink: Keeping, dsn: str) -> None:
    sink.at(1_000, 1)
    assert run(dsn, "SELECT count(*) FROM pg_indexes WHERE tablename = 'target'") == [(0,)]
    sink.at(60_000, 2).at(80_000, 3)
    assert run(dsn, "SELECT count(*) FROM pg_indexes WHERE tablename = 'target'") == [(1,)]
