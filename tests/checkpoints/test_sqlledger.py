"""The ledger gives back what it was given, joins a caller's transaction, and never mixes two histories."""

from __future__ import annotations

import sqlite3
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import create_engine, text
from tests.checkpoints.samples import QUERY, another, at, epoch_after, file, history, record_of

from onceonly_checkpoints import chain
from onceonly_checkpoints.epoch import EpochRecord, Fence
from onceonly_checkpoints.ledger import (
    Event,
    EventKind,
    Intent,
    KeptPlan,
    LedgerConflict,
    LedgerUnavailable,
    Pipeline,
)
from onceonly_checkpoints.ledger.location import place_of
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Slice, SourceOffsets

if TYPE_CHECKING:
    from onceonly_lab.servers.postgres import EmbeddedPostgres

PIPELINE = Pipeline("orders", (("delta:t", "delta:/t"), ("postgres:t", "postgres:h/t")), QUERY, "file:/ck", 3, 77)


def fill(ledger: SqlLedger, length: int, pipeline: str = "orders") -> list[EpochRecord]:
    records = list(history(length, pipeline))
    for record in records:
        ledger.record(record)
    return records


def test_a_record_comes_back_as_it_was(ledger: SqlLedger) -> None:
    records = fill(ledger, 5)
    assert list(ledger.epochs("orders")) == records
    assert ledger.head("orders") == records[-1]
    assert chain.first_break([record.epoch for record in ledger.epochs("orders")]) is None


def test_an_empty_ledger_knows_nothing(ledger: SqlLedger) -> None:
    assert ledger.head("orders") is None
    assert ledger.find("orders", QUERY, 0) is None
    assert ledger.intent("orders", 1) is None
    assert [*ledger.epochs("orders"), *ledger.pipelines(), *ledger.events("orders")] == []


def test_a_range_of_epochs_is_oldest_first(ledger: SqlLedger) -> None:
    records = fill(ledger, 12)
    assert list(ledger.epochs("orders", 4, 6)) == records[3:6]
    assert list(ledger.epochs("orders", first=11)) == records[10:]
    assert list(ledger.epochs("orders", last=2)) == records[:2]


def test_the_newest_epoch_of_a_batch_is_found(ledger: SqlLedger) -> None:
    records = fill(ledger, 3)
    again = record_of(replace(epoch_after(records[-1].epoch, at(9), records[1].epoch.lineage)))
    ledger.record(again)
    assert ledger.find("orders", QUERY, 1) == again
    assert ledger.find("orders", QUERY, 2) == records[2]
    assert ledger.find("orders", "another-query", 1) is None


def test_pipelines_do_not_see_each_other(ledger: SqlLedger) -> None:
    fill(ledger, 3)
    other = fill(ledger, 1, "payments")
    assert ledger.head("payments") == other[0]
    ledger.discard("orders", 1)
    assert list(ledger.epochs("payments")) == other


def test_an_adoption_has_no_batch_and_comes_back(ledger: SqlLedger) -> None:
    records = fill(ledger, 1)
    adopted = record_of(epoch_after(records[0].epoch, at(40), None))
    ledger.record(adopted)
    assert ledger.head("orders") == adopted


def test_sources_keep_their_order(ledger: SqlLedger) -> None:
    offsets = SourceOffsets.of({"orders": '{"a":1}', "amounts": None, "Über": "opaque"})
    record = record_of(epoch_after(None, offsets, None))
    ledger.record(record)
    ledger.intend(Intent("orders", 2, Fence(1, "o"), Slice(offsets, offsets), 5))
    found, intent = ledger.head("orders"), ledger.intent("orders", 2)
    assert found is not None
    assert intent is not None
    assert found.epoch.written.end.sources == intent.slice.end.sources == ("orders", "amounts", "Über")


def test_recording_the_same_epoch_again_changes_nothing(ledger: SqlLedger) -> None:
    records = fill(ledger, 3)
    for record in records:
        ledger.record(record)
    assert list(ledger.epochs("orders")) == records


def test_a_later_record_of_an_epoch_adds_to_the_first_and_keeps_what_it_does_not_know(ledger: SqlLedger) -> None:
    record = fill(ledger, 1)[0]
    poorer = replace(record, receipts=record.receipts[:1], files=(), phases=(("record", 0.5),), recorded_ms=1)
    ledger.record(poorer)
    found = ledger.head("orders")
    assert found == replace(record, receipts=record.receipts[:1], phases=(("record", 0.5),))


def test_another_epoch_under_the_same_number_is_refused_and_the_first_stays(ledger: SqlLedger) -> None:
    records = fill(ledger, 2)
    with pytest.raises(LedgerConflict) as error:
        ledger.record(another(records[1]))
    assert (error.value.pipeline, error.value.epoch, error.value.recorded) == ("orders", 2, records[1].epoch.chain)
    assert list(ledger.epochs("orders")) == records


def test_the_ledger_notes_the_time_where_none_is_given(ledger: SqlLedger) -> None:
    record = replace(next(iter(history(1))), recorded_ms=0)
    ledger.record(record)
    ledger.intend(Intent("orders", 2, Fence(1, "o"), record.epoch.written))
    ledger.note(Event("orders", EventKind.OPENED, "a driver started"))
    found, intent = ledger.head("orders"), ledger.intent("orders", 2)
    assert found is not None
    assert intent is not None
    assert min(found.recorded_ms, intent.at_ms, ledger.events("orders")[0].at_ms) > 1_700_000_000_000


def test_a_later_intent_replaces_the_earlier(ledger: SqlLedger) -> None:
    first = Intent("orders", 4, Fence(1, "a"), Slice(at(1), at(2)), 10)
    later = Intent("orders", 4, Fence(2, "b"), Slice(at(1), at(5)), 20)
    ledger.intend(first)
    ledger.intend(later)
    assert ledger.intent("orders", 4) == later


def test_discarding_forgets_epochs_and_their_parts_but_no_intents_and_events(ledger: SqlLedger) -> None:
    records = fill(ledger, 5)
    intent = Intent("orders", 4, Fence(1, "a"), Slice(at(1), at(2)), 10)
    ledger.intend(intent)
    ledger.note(Event("orders", EventKind.DIVERGED, "restored", 4, 3, 9))
    ledger.discard("orders", 4)
    assert list(ledger.epochs("orders")) == records[:3]
    assert ledger.intent("orders", 4) == intent
    assert len(ledger.events("orders")) == 1
    shorter = replace(another(records[3]), files=(file(77),), receipts=(), phases=())
    ledger.record(shorter)
    assert ledger.head("orders") == shorter


def test_a_pipeline_is_listed_with_its_newest_epoch(ledger: SqlLedger) -> None:
    ledger.enter(PIPELINE)
    ledger.enter(replace(PIPELINE, name="adverts", sinks=()))
    fill(ledger, 3)
    assert list(ledger.pipelines()) == [replace(PIPELINE, name="adverts", sinks=()), replace(PIPELINE, epoch=3)]


def test_entering_again_replaces_the_row_and_its_sinks(ledger: SqlLedger) -> None:
    ledger.enter(PIPELINE)
    later = replace(PIPELINE, sinks=(("kafka:x", "kafka:b/x"),), generation=4, opened_ms=99, query_id="other")
    ledger.enter(later)
    assert list(ledger.pipelines()) == [later]


def test_the_newest_events_are_told_oldest_first(ledger: SqlLedger) -> None:
    events = [
        Event("orders", kind, f"reason {number}", number, 2, 100 + number) for number, kind in enumerate(EventKind)
    ]
    for event in events:
        ledger.note(event)
    ledger.note(Event("payments", EventKind.OPENED, "another", at_ms=1))
    assert list(ledger.events("orders")) == events
    assert list(ledger.events("orders", limit=3)) == events[-3:]
    opened = replace(events[0], reason="once more", at_ms=200)
    ledger.note(opened)
    assert list(ledger.events("orders", kind=EventKind.OPENED)) == [events[0], opened]
    assert list(ledger.events("orders", 1, EventKind.OPENED)) == [opened]
    assert list(ledger.events("payments", kind=EventKind.FENCED)) == []


def test_a_joined_transaction_is_the_callers_to_commit(ledger: SqlLedger, url: str) -> None:
    engine = place_of(url).engine()
    record, second = history(2)
    with engine.begin() as connection:
        ledger.record(record, connection=connection)
    assert ledger.head("orders") == record
    with engine.connect() as connection, connection.begin() as transaction:
        ledger.record(second, connection=connection)
        transaction.rollback()
    assert ledger.head("orders") == record
    engine.dispose()


def test_a_conflict_in_a_joined_transaction_does_not_break_it(ledger: SqlLedger, url: str) -> None:
    records = fill(ledger, 1)
    engine = place_of(url).engine()
    with engine.begin() as connection:
        with pytest.raises(LedgerConflict):
            ledger.record(another(records[0]), connection=connection)
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


@pytest.mark.postgres
def test_any_engine_of_the_same_postgres_can_be_joined(postgres_url: str) -> None:
    ledger = SqlLedger(postgres_url)
    ledger.open()
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        ledger.record(next(iter(history(1))), connection=connection)
    assert ledger.head("orders") is not None
    engine.dispose()
    ledger.close()


def test_drivers_that_start_at_once_create_one_ledger(url: str) -> None:
    barrier, failures = threading.Barrier(6), []

    def start(number: int) -> None:
        ledger = SqlLedger(url)
        barrier.wait()
        try:
            ledger.open()
            ledger.enter(replace(PIPELINE, name=f"pipeline {number}"))
        except LedgerUnavailable as error:
            failures.append(error)
        finally:
            ledger.close()

    threads = [threading.Thread(target=start, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    ledger = SqlLedger(url)
    assert len(ledger.pipelines()) == 6
    ledger.close()


def test_two_drivers_write_side_by_side(ledger: SqlLedger, url: str) -> None:
    other = SqlLedger(url)
    writers = [
        threading.Thread(target=fill, args=(each, 30, name)) for each, name in ((ledger, "orders"), (other, "payments"))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(ledger.epochs("orders")) == len(other.epochs("payments")) == 30
    other.close()


def test_opening_again_keeps_everything(ledger: SqlLedger, url: str) -> None:
    records = fill(ledger, 2)
    ledger.open()
    ledger.close()
    again = SqlLedger(url)
    again.open()
    assert list(again.epochs("orders")) == records
    again.close()


def test_closing_may_repeat_and_the_next_call_connects_again(ledger: SqlLedger) -> None:
    records = fill(ledger, 1)
    ledger.close()
    ledger.close()
    assert ledger.head("orders") == records[0]


def test_a_ledger_of_a_newer_version_is_refused(ledger: SqlLedger, url: str) -> None:
    engine = place_of(url).engine()
    schema = place_of(url).schema
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {schema + '.' if schema else ''}ledger_version SET version = 99"))
    engine.dispose()
    with pytest.raises(LedgerUnavailable, match="version 99"):
        ledger.open()


def test_what_people_ask_for_are_columns(ledger: SqlLedger, url: str) -> None:
    fill(ledger, 3)
    engine = place_of(url).engine()
    schema = place_of(url).schema
    with engine.begin() as connection:
        row = connection.execute(
            text(
                "SELECT sum(row_count), max(batch_id), max(slice_end), max(query_id) "
                f"FROM {schema + '.' if schema else ''}ledger_epochs"
            )
        ).one()
    engine.dispose()
    assert tuple(row) == (30, 2, '[["0","{\\"logOffset\\":2}"]]', QUERY)


@pytest.mark.postgres
def test_a_connection_that_the_server_dropped_between_epochs_is_replaced(postgres_url: str) -> None:
    ledger = SqlLedger(postgres_url)
    ledger.open()
    records = list(history(2))
    ledger.record(records[0])
    ledger.note(Event("orders", EventKind.OPENED, "once", at_ms=1))
    admin = place_of(postgres_url).engine()
    with admin.begin() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'onceonly-ledger' AND pid <> pg_backend_pid()"
            )
        )
    ledger.record(records[1])
    ledger.note(Event("orders", EventKind.OPENED, "twice", at_ms=2))
    assert ledger.head("orders") == records[1]
    assert [event.reason for event in ledger.events("orders")] == ["once", "twice"]
    admin.dispose()
    ledger.close()


@pytest.mark.postgres
def test_an_intent_is_not_waited_for_where_a_record_is(postgres: EmbeddedPostgres, postgres_url: str) -> None:
    ledger, record = SqlLedger(postgres_url), next(iter(history(1)))
    ledger.open()
    over = threading.Event()

    def keep_recording() -> None:
        while not over.is_set():
            ledger.record(record)

    records = threading.Thread(target=keep_recording)
    intends = threading.Thread(target=lambda: ledger.intend(Intent("orders", 1, record.fence, record.epoch.written)))
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        # Whoever waits for a flush waits for a standby that does not exist.
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            records.start()
            until = time.monotonic() + 30
            while not connection.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall():
                assert time.monotonic() < until, "no record was waited for"
                time.sleep(0.01)
            intends.start()
            intends.join(20)
            in_time = not intends.is_alive()
        finally:
            over.set()
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            records.join()
    intends.join()
    assert in_time
    assert ledger.intent("orders", 1) is not None
    ledger.close()


def test_an_event_that_this_version_does_not_know_is_said_in_the_ledgers_own_words(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = SqlLedger(str(path))
    ledger.open()
    ledger.note(Event("orders", EventKind.OPENED, "a driver started"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE ledger_events SET kind = 'teleported'")
    with pytest.raises(LedgerUnavailable, match="a newer version wrote it"):
        list(ledger.events("orders"))
    ledger.close()


def test_what_is_superseded_is_set_aside_with_its_words_and_its_numbers_are_free_again(ledger: SqlLedger) -> None:
    records = fill(ledger, 5)
    ledger.intend(Intent("orders", 6, Fence(1, "a"), Slice(at(1), at(2)), 10))
    aside = ledger.supersede("orders", 4, "cut back to epoch 3")
    assert [one.epoch for one in aside] == [record.epoch for record in records[3:]]
    assert list(ledger.epochs("orders")) == records[:3]
    assert ledger.intent("orders", 6) is None
    second = another(records[3])
    ledger.record(second)
    assert ledger.supersede("orders", 6, "again") == []
    assert [(one.epoch, one.why) for one in ledger.superseded("orders")] == [
        (record.epoch, "cut back to epoch 3") for record in records[3:]
    ]
    ledger.supersede("orders", 4, "once more")
    assert [one.epoch.chain for one in ledger.superseded("orders")][-1] == second.epoch.chain
    assert list(ledger.superseded("payments")) == []
    ledger.forget("orders")
    assert list(ledger.superseded("orders")) == []


def test_a_plan_is_kept_once_and_goes_with_its_pipeline(ledger: SqlLedger) -> None:
    first = KeptPlan("orders", "1-4.2-3.11-aa", "Project\n  relation", 1)
    other = KeptPlan("orders", "1-4.2-3.11-bb", "Filter\n  relation", 7)
    for plan in (other, first, replace(first, first_epoch=9), replace(other, pipeline="payments")):
        ledger.keep_plan(plan)
    assert list(ledger.plans("orders")) == [first, other]
    ledger.forget("orders")
    assert list(ledger.plans("orders")) == []
    assert len(ledger.plans("payments")) == 1
