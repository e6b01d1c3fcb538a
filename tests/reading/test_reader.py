"""A reader is told how far a dataset has come: one writer or several, now or at a place, and waits until it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.reading.writing import Writer

from onceonly import OnceOnlyError
from onceonly.event_time import FixedWindow, FixedWindows, NotComplete, TimeReader, TimeWindow
from onceonly.machine.writer_progress import WriterSet
from onceonly.reading import read_point
from onceonly_checkpoints.epoch import Marker, Receipt
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_sinks.memory import MemorySink, MemoryStore

SEVERAL = WriterSet(("web", "app"), 60)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("clicks")


def writer(store: MemoryStore, name: str = "web", writers: WriterSet | None = None, **options: object) -> Writer:
    return Writer(name, MemorySink(store=store), writers, **options)  # type: ignore[arg-type]


def reader(store: MemoryStore, name: str = "web") -> TimeReader:
    return TimeReader(name, MemorySink(store=store))


def names(window: TimeWindow) -> list[str]:
    return [mark.writer for mark in window.held]


@pytest.fixture
def two(store: MemoryStore) -> tuple[Writer, Writer]:
    return writer(store, "web", SEVERAL), writer(store, "app", SEVERAL)


def test_a_reader_of_one_writer_is_told_what_it_noted_and_what_it_has_seen(store: MemoryStore) -> None:
    web = writer(store)
    web.write(3, 9, noted=7, closed_until=5)
    found = reader(store).time_window()
    assert (found.lower, found.upper, found.closed, found.unit, found.basis) == (7, 9, 5, "integer", "committed")
    assert [(mark.writer, mark.epoch) for mark in found.at] == [("web", 1)]


def test_nothing_is_known_before_the_first_epoch_with_a_time(store: MemoryStore) -> None:
    web = writer(store)
    assert reader(store).time_window() == TimeWindow(None, None)
    web.commit((1, 2), None)
    assert reader(store).time_window() == TimeWindow(None, None)


def test_any_writer_of_a_dataset_may_be_named_and_one_that_came_late_is_found(
    store: MemoryStore, two: tuple[Writer, Writer]
) -> None:
    web, app = two
    web.write(100, noted=100)
    assert reader(store).time_window().lower is None
    app.write(70, noted=70, sees=[web])
    for name in ("web", "app"):  # web has not seen app, and app has seen web
        found = reader(store, name).time_window()
        assert (found.lower, found.upper, names(found)) == (70, 100, ["app"])


def test_a_writer_that_nobody_declared_and_nobody_has_seen_yet_is_found_by_its_own_word(store: MemoryStore) -> None:
    web, late = writer(store, "web", WriterSet()), writer(store, "late", WriterSet())
    web.write(100, noted=100)
    late.write(120, noted=70, sees=[web])
    found = reader(store, "web").time_window()
    assert (found.lower, found.upper, found.without) == (100, 120, ("late",))


def test_a_pipeline_that_writes_the_same_table_for_itself_is_another_dataset(store: MemoryStore) -> None:
    writer(store, "web").write(5, noted=5)
    writer(store, "app").write(9, noted=9)
    assert [reader(store, name).time_window().lower for name in ("web", "app")] == [5, 9]


def test_reading_changes_nothing_and_disturbs_no_writer(store: MemoryStore, two: tuple[Writer, Writer]) -> None:
    web, app = two
    looking = reader(store)
    for number in range(1, 4):
        web.write(number, noted=number, sees=[app])
        looking.time_window()
        app.write(number, noted=number, sees=[web])
    assert looking.time_window().lower == 3


def test_a_sink_that_a_query_writes_with_is_left_alone(store: MemoryStore) -> None:
    web = writer(store)
    with pytest.raises(OnceOnlyError, match='in use by pipeline "web"') as caught:
        TimeReader("web", web.sink)
    assert "a sink of its own" in caught.value.remedy
    with pytest.raises(OnceOnlyError, match="neither a sink nor a ledger"):
        TimeReader("web", 7)  # type: ignore[arg-type]


# ---- Rows that are gone.


def test_a_store_that_was_set_back_is_complete_through_nothing_until_its_writer_goes_on(store: MemoryStore) -> None:
    web = writer(store)
    web.write(1, noted=1)
    web.write(5, noted=5)
    store.restore(1)
    found = reader(store).time_window()
    assert (found.lower, found.lost) == (None, ("web",))
    del web.epochs[1:]
    web.take_over()
    web.write(3, noted=3)
    found = reader(store).time_window()
    assert (found.lower, found.lost) == (3, ())


def test_what_a_peer_has_concluded_from_epochs_that_are_gone_does_not_count(
    store: MemoryStore, two: tuple[Writer, Writer]
) -> None:
    web, app = two
    web.write(10, noted=10)
    app.write(90, noted=90, sees=[web])
    web.write(15, noted=15, sees=[app])
    web.write(80, noted=80, sees=[app])
    app.write(95, noted=95, sees=[web])
    assert reader(store).time_window().lower == 80
    store._log[:] = [entry for entry in store._log if (entry.writer or ("",))[0] != "web" or entry.epoch < 3]
    found = reader(store).time_window()
    assert (found.lower, found.lost) == (15, ("web",))


def test_a_table_that_was_overwritten_is_complete_through_nothing(store: MemoryStore) -> None:
    from tests.reading.writing import rows_at

    web = writer(store)
    web.write(1, noted=1)
    store.overwrite(rows_at([7]))
    found = reader(store).time_window()
    assert (found.lower, found.lost) == (None, ("web",))


# ---- At a place.


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    found = SqlLedger(str(tmp_path / "ledger.db"))
    found.open()
    yield found
    found.close()


def test_whoever_has_read_up_to_an_epoch_has_what_was_noted_then(store: MemoryStore, ledger: SqlLedger) -> None:
    web = writer(store, ledger=ledger)
    for number in range(1, 6):
        web.write(number * 10, noted=number * 10)
    for source in (MemorySink(store=store), ledger):
        with TimeReader("web", source) as looking:
            for number in range(1, 6):
                found = looking.time_window(read_point("web", number, ledger=ledger))
                assert (found.lower, found.upper) == (number * 10, number * 10)
            assert looking.time_window({"web": 3}).lower == 30
            assert looking.time_window({"web": 9}).upper is None


def test_a_place_in_what_two_writers_have_written_passes_only_what_both_have_there(
    store: MemoryStore, two: tuple[Writer, Writer]
) -> None:
    web, app = two
    web.write(100, noted=100)
    first = app.write(70, noted=70, sees=[web])
    second = web.write(110, noted=110, sees=[app])
    looking = reader(store)
    assert (looking.time_window(first).lower, looking.time_window(second).lower) == (70, 70)
    assert looking.time_window({"web": 2}).lower is None
    assert looking.time_window({"web": 2, "app": 1}).lower == 70
    assert looking.time_window({"web": 1, "app": 1}).at != looking.time_window().at


def test_a_read_point_of_one_of_two_writers_is_as_of_what_its_epoch_had_seen(
    store: MemoryStore, ledger: SqlLedger
) -> None:
    web, app = (writer(store, name, SEVERAL, ledger=ledger) for name in ("web", "app"))
    web.write(100, noted=100)
    app.write(70, noted=70, sees=[web])
    web.write(110, noted=110, sees=[app])
    app.write(90, noted=90, sees=[web])
    found = TimeReader("web", ledger).time_window(read_point("web", 2, ledger=ledger))
    assert (found.lower, [(mark.writer, mark.epoch) for mark in found.at]) == (70, [("app", 1), ("web", 2)])


@pytest.mark.parametrize("place", [{"clicks": {"0": 5}}, {"clicks": {"0": "x"}}, "[1]", 4])
def test_a_place_that_epochs_are_not_counted_by_is_no_place(store: MemoryStore, place: object) -> None:
    writer(store).write(1, noted=1)
    with pytest.raises(OnceOnlyError, match="is no place in a dataset"):
        reader(store).time_window(place)  # type: ignore[arg-type]


# ---- Windows, and waiting.


def test_windows_are_open_complete_or_closed(store: MemoryStore) -> None:
    writer(store).write(1, 12, 31, noted=25, closed_until=10)
    found = list(reader(store).windows(FixedWindows(10), since=3))
    assert found == [
        FixedWindow(0, 10, "closed"),
        FixedWindow(10, 20, "complete"),
        FixedWindow(20, 30, "open"),
        FixedWindow(30, 40, "open"),
    ]


def test_a_period_in_words_is_no_size_for_a_dataset_that_counts(store: MemoryStore) -> None:
    writer(store).write(1, noted=1)
    with pytest.raises(OnceOnlyError, match="counts ms, and the dataset integer"):
        reader(store).windows(FixedWindows("2 minutes"), since=1)


def test_waiting_ends_when_it_is_complete(store: MemoryStore) -> None:
    web = writer(store, unit="ms")
    web.write(1_000, noted=1_000)
    looked = threading.Event()

    class Watched(MemorySink):
        """Tells when somebody has looked."""

        def history(self, after: int = 0) -> Iterator[tuple[Marker, Receipt]]:
            looked.set()
            return super().history(after)

    def write() -> None:
        assert looked.wait(60)
        web.write(61_000, noted=61_000)

    looking = TimeReader("web", Watched(store=store))
    assert looking.wait_complete("1970-01-01T00:00:01Z", timeout=0).lower == 1_000
    looked.clear()
    later = threading.Thread(target=write)
    later.start()
    assert looking.wait_complete("1970-01-01T00:01Z", timeout=60, poll=0.02).lower == 61_000
    later.join()


def test_a_wait_that_ends_without_says_how_far_it_came_and_whom_it_waits_for(
    store: MemoryStore, two: tuple[Writer, Writer]
) -> None:
    web, app = two
    web.write(100, noted=100)
    app.write(70, noted=70, sees=[web])
    with pytest.raises(NotComplete) as caught:
        reader(store).wait_complete(71, timeout=0.05, poll=0.01)
    assert isinstance(caught.value, TimeoutError)
    assert str(caught.value) == '"web" is not complete until 71: complete until 70, which waits for app'
    assert caught.value.window.lower == 70


def test_nobody_may_be_left_out_unless_that_is_allowed(store: MemoryStore, two: tuple[Writer, Writer]) -> None:
    web, app = two
    app.write(70, noted=70)
    web.write(130, noted=130, ingest=61, sees=[app])
    looking = reader(store)
    assert looking.wait_complete(130, timeout=0, allow_left_out=True).without == ("app",)
    with pytest.raises(NotComplete, match="complete until 130, without app"):
        looking.wait_complete(130, timeout=0)
    assert [window.status for window in looking.windows(FixedWindows(65), since=0)] == ["open", "open", "open"]


def test_a_moment_without_a_zone_is_refused_at_once(store: MemoryStore) -> None:
    with pytest.raises(OnceOnlyError, match="no time zone"):
        reader(store).wait_complete("2026-01-01T12:00", timeout=60)
