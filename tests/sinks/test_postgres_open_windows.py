"""Open windows in a table of Postgres, as they are shown: without a fence, in order, of the epochs that count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sinks.postgres_writer import PIPELINE, Writer, run

from onceonly.protocol.capabilities import OpenWindow, StateRow, WindowStore
from onceonly_lab.conformance.claims_window_state import StateRowCase, table_of
from onceonly_sinks.postgres import PostgresSink

pytestmark = pytest.mark.postgres

SOON, LATER, OTHER = (
    StateRowCase("a", 10, 20, "soon", time=20),
    StateRowCase("a", 20, 30, "later", clock=7, time=30),
    StateRowCase("b", 10, 20, "other", time=20),
)


def shown(window: StateRowCase, epoch: int) -> OpenWindow:
    row = StateRow(window.key, window.start, window.stop, window.body, epoch)
    return OpenWindow(row, window.clock, window.time)


@pytest.fixture
def looking(dsn: str) -> Iterator[PostgresSink]:
    """Somebody who only reads, found by the address of the table."""
    told = PostgresSink(dsn, "target").window_store(separate=True)
    sink = PostgresSink.from_address(told.address)
    told.close()
    sink.open(PIPELINE)
    yield sink
    sink.close()


def test_windows_are_shown_to_whoever_reads_those_first_that_do_something_first(
    dsn: str, looking: PostgresSink
) -> None:
    assert isinstance(looking, WindowStore)
    assert (looking.count_windows(1), list(looking.open_windows(1))) == (0, []), "no table is no window"
    with Writer(dsn, "target_state", holds="state") as state:
        state.write(table_of([LATER, OTHER], ()))
        state.write(table_of([SOON], ()))
        assert list(looking.open_windows(1)) == [shown(SOON, 2), shown(OTHER, 1), shown(LATER, 1)]
        assert list(looking.open_windows(1, limit=2)) == [shown(SOON, 2), shown(OTHER, 1)]
        assert list(looking.open_windows(1, key="b")) == [shown(OTHER, 1)]
        assert list(looking.open_windows(1, key="b'; drop table target_state; --")) == []
        assert looking.count_windows(1) == 3
        state.write(table_of([], [SOON]))
        assert looking.count_windows(1) == 2


def test_windows_of_epochs_that_were_given_up_are_not_shown(dsn: str, looking: PostgresSink) -> None:
    with Writer(dsn, "target_state", holds="state") as state:
        state.write(table_of([LATER, OTHER], ()))
        state.write(table_of([SOON], ()))
    assert (looking.count_windows(2), list(looking.open_windows(2))) == (1, [shown(SOON, 2)])
    assert (looking.count_windows(3), list(looking.open_windows(3))) == (0, [])


def test_a_row_that_is_of_no_epoch_is_shown_and_counted(dsn: str, looking: PostgresSink) -> None:
    with Writer(dsn, "target_state", holds="state") as state:
        state.write(table_of([SOON], ()))
    run(dsn, "UPDATE target_state SET _epoch = NULL")
    assert (looking.count_windows(1), list(looking.open_windows(1))) == (1, [shown(SOON, 0)])


def test_more_windows_than_lie_in_memory_at_once_come_piece_by_piece(dsn: str, looking: PostgresSink) -> None:
    windows = [StateRowCase(f"{number:05}", 0, 10, "body", time=number) for number in range(2500)]
    with Writer(dsn, "target_state", holds="state") as state:
        state.write(table_of(windows, ()))
    assert list(looking.open_windows(1)) == [shown(window, 1) for window in windows]
