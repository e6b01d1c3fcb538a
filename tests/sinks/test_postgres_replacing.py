"""Postgres at a full refresh: old rows leave in the transaction that brings the first new ones, or nothing happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sinks.epochs import epoch_after
from tests.sinks.postgres_writer import PIPELINE, Writer, orders, rows, run
from tests.sinks.variants import BOTH_WAYS

from onceonly import faults
from onceonly.audit import audit
from onceonly.errors import OnceOnlyError
from onceonly.faults import InjectedFault, Point
from onceonly.protocol import OutcomeUnknown, ReplacesRows
from onceonly.protocol.batch import ArrowBatch
from onceonly_checkpoints.chain import linked
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_sinks.postgres import PostgresSink, PostgresTuning
from onceonly_sinks.postgres.load import PostgresPrepared

pytestmark = pytest.mark.postgres


@pytest.fixture(params=BOTH_WAYS)
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def marker_of(writer: Writer, count: int) -> Marker:
    """The marker of an epoch that replaces all before it."""
    assert writer.last
    last = writer.last.number
    epoch = replace(epoch_after(writer.last, writer.sink.id, count), series=last + 1, replaces=(1, last))
    return Marker(PIPELINE, writer.sink.id, writer.fence, linked(epoch))


def prepares(writer: Writer, *ids: int) -> PostgresPrepared:
    assert writer.last
    last = writer.last.number
    assert writer.sink.cannot_replace((1, last)) == ""
    return writer.sink.prepare_replacement(ArrowBatch(orders(*ids, note="anew")), last + 1, (1, last))


def replaces(writer: Writer, *ids: int) -> Receipt:
    prepared = prepares(writer, *ids)
    marker = marker_of(writer, prepared.rows)
    try:
        receipt = writer.sink.commit(prepared, marker)
    finally:
        prepared.abandon()
    writer.last = marker.epoch
    return receipt


def written(dsn: str, via: str, **options: object) -> Writer:
    writer = Writer(dsn, load=via, **options)
    writer.write(orders(1, 2))
    writer.write(orders(3))
    return writer


def test_it_says_that_it_can() -> None:
    assert isinstance(PostgresSink("postgresql:///x", "t"), ReplacesRows)


def test_old_rows_leave_and_new_ones_come_under_one_marker(dsn: str, via: str) -> None:
    with written(dsn, via) as writer:
        replaces(writer, 1, 9)
        assert rows(dsn) == [(1, "anew", 3), (9, "anew", 3)]
        writer.write(orders(10))
        assert writer.sink.recount() == {3: 2, 4: 1}
        assert [marker.epoch.number for marker, _ in writer.sink.history()] == [1, 2, 3, 4]


def test_an_audit_counts_the_series_that_stands_and_none_of_those_before(dsn: str, via: str) -> None:
    with written(dsn, via) as writer:
        replaces(writer, 1, 9)
        result = audit(None, PIPELINE, [writer.sink])
        assert "2 rows counted there, 2 committed since epoch 3, which replaced all before" in result.scope
        run(dsn, "INSERT INTO target VALUES (7, 'back', 1)")
        found = audit(None, PIPELINE, [writer.sink]).findings
        assert [(one.code, one.epoch) for one in found if one.code == "A122"] == [("A122", 1)]


def test_a_primary_key_meets_no_old_row(dsn: str, via: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, note text, _epoch bigint)")
    with written(dsn, via) as writer:
        replaces(writer, 1, 2, 3)
        assert rows(dsn) == [(1, "anew", 3), (2, "anew", 3), (3, "anew", 3)]


def test_an_upsert_replaces_where_the_table_is_ours_alone(dsn: str, via: str) -> None:
    with written(dsn, via, key="id") as writer:
        replaces(writer, 2, 9)
        assert rows(dsn) == [(2, "anew", 3), (9, "anew", 3)]


def test_an_empty_first_batch_takes_the_old_rows_away_too(dsn: str, via: str) -> None:
    with written(dsn, via) as writer:
        replaces(writer)
        assert rows(dsn) == []


def test_rows_of_others_stay(dsn: str, via: str) -> None:
    with written(dsn, via) as writer:
        run(dsn, "INSERT INTO target VALUES (77, 'theirs', NULL)")
        replaces(writer, 1)
        assert rows(dsn) == [(1, "anew", 3), (77, "theirs", None)]


@pytest.mark.parametrize("point", [Point.PREPARE_SENT, Point.COMMIT_SENT])
def test_nothing_leaves_before_the_commit(dsn: str, via: str, point: Point) -> None:
    before = [(1, "new", 1), (2, "new", 1), (3, "new", 2)]
    with written(dsn, via) as writer:
        seen: list[object] = []
        faults.arm(point, lambda: seen.append(rows(dsn)))
        replaces(writer, 5)
        assert seen == [before if point is Point.PREPARE_SENT else [(5, "anew", 3)]]


def test_what_was_only_prepared_leaves_everything(dsn: str, via: str) -> None:
    with written(dsn, via) as writer:
        prepares(writer, 5).abandon()
        assert len(rows(dsn)) == 3


def test_a_lost_answer_is_looked_up_and_the_rows_were_replaced_once(dsn: str, via: str) -> None:
    def lose() -> None:
        raise InjectedFault("the answer was lost")

    with written(dsn, via) as writer:
        prepared, marker = prepares(writer, 5), marker_of(writer, 1)
        faults.arm(Point.COMMIT_SENT, lose)
        with pytest.raises(OutcomeUnknown):
            writer.sink.commit(prepared, marker)
        faults.disarm()
        assert writer.sink.look_up(marker) is not None
        assert rows(dsn) == [(5, "anew", 3)]


def test_a_marker_that_replaces_is_obeyed_whatever_prepare_was_told(dsn: str, via: str) -> None:
    """A healer that only prepares as ever deletes all the same: the marker says so."""
    with written(dsn, via) as writer:
        prepared = writer.prepare(orders(5, note="anew"))
        writer.sink.commit(prepared, marker_of(writer, 1))
        assert rows(dsn) == [(5, "anew", 3)]


@pytest.mark.parametrize(
    ("before", "options", "words"),
    [
        ("CREATE TABLE target (id bigint, note text)", {}, "carry no epoch"),
        ("SELECT 1", {"tuning": PostgresTuning(epoch_column=None)}, "carry no epoch"),
        ("SELECT 1", {"apply": lambda cursor, staged, epoch: None}, "apply="),
    ],
)
def test_rows_that_cannot_be_told_apart_are_refused_by_name(
    dsn: str, before: str, options: dict[str, object], words: str
) -> None:
    run(dsn, "CREATE TABLE IF NOT EXISTS kept (id bigint)")
    run(dsn, before)
    if "apply" in options:
        run(dsn, "CREATE TABLE target (id bigint)")
    with written(dsn, "driver", **options) as writer:
        assert words in writer.sink.cannot_replace((1, 2))
        prepared = writer.prepare(orders(5))
        with pytest.raises(OnceOnlyError) as refused:
            writer.sink.commit(prepared, marker_of(writer, 1))
        assert refused.value.code == "E247"


def test_a_table_of_two_sinks_is_refused(dsn: str) -> None:
    with written(dsn, "driver") as writer, Writer(dsn, id="postgres:other") as other:
        other.write(orders(8))
        assert "another sink" in writer.sink.cannot_replace((1, 2))


def test_an_upsert_beside_rows_of_others_is_refused(dsn: str) -> None:
    with written(dsn, "driver", key="id") as writer:
        run(dsn, "INSERT INTO target VALUES (77, 'theirs', NULL)")
        assert "has other writers" in writer.sink.cannot_replace((1, 2))


def test_rows_that_others_refer_to_are_refused(dsn: str) -> None:
    run(dsn, "CREATE TABLE target (id bigint PRIMARY KEY, note text, _epoch bigint)")
    run(dsn, "CREATE TABLE lines (of bigint REFERENCES target ON DELETE CASCADE)")
    with written(dsn, "driver") as writer:
        assert "foreign keys of lines" in writer.sink.cannot_replace((1, 2))


def test_rows_that_a_trigger_keeps_are_refused_and_nothing_is_written(dsn: str) -> None:
    with written(dsn, "driver", triggers="allow") as writer:
        run(dsn, "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        run(dsn, "CREATE TRIGGER keep BEFORE DELETE ON target FOR EACH ROW EXECUTE FUNCTION keep()")
        with pytest.raises(OnceOnlyError) as refused:
            replaces(writer, 5)
        assert refused.value.code == "E247"
        assert len(rows(dsn)) == 3


def test_a_milestone_begins_anew_with_a_series(dsn: str) -> None:
    from onceonly_sinks.postgres.prune import prune

    with written(dsn, "driver") as writer:
        replaces(writer, 5)
        writer.write(orders(6))
        prune(writer.sink._transactions, writer.sink._writer, writer.fence, 3)
        gone = writer.sink.pruned_epochs()
        assert gone is not None
        assert (gone.epoch, gone.rows, gone.accepted) == (3, 1, 2)
        assert not [
            finding for finding in audit(None, PIPELINE, [writer.sink]).findings if finding.code in ("A121", "A122")
        ]
