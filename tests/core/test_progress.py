"""Progress on a terminal: at most one line a second, faster epochs summed. Clock, timer and stream are given."""

from __future__ import annotations

import io
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import pytest
from tests.core.several import left_behind

from onceonly.api.progress import Progress, Shown, later


class Terminal(io.StringIO):
    """A terminal that knows when each line came."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self.time, self.came = time, list[float]()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.came += [self.time.now] * text.count("\n")
        return super().write(text)

    @property
    def lines(self) -> list[str]:
        """Without the first, of the start."""
        return self.getvalue().splitlines()[1:]


class ClosedTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def write(self, _: str) -> int:
        raise OSError("Input/output error")


@dataclass
class Time:
    """A clock that a test moves. Timers run when it passes them."""

    now: float = 1_000.0
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def later(self, seconds: float, run: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, run))

    def passes(self, seconds: float) -> None:
        until = self.now + seconds
        while due := min((timer for timer in self.timers if timer[0] <= until), key=itemgetter(0), default=None):
            self.timers.remove(due)
            self.now = due[0]
            due[1]()
        self.now = until


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEONLY_PROGRESS", raising=False)


@pytest.fixture
def time() -> Time:
    return Time()


@contextmanager
def watched(time: Time, stream: io.StringIO | None = None) -> Iterator[tuple[Progress, Terminal]]:
    terminal = Terminal(time)
    with redirect_stderr(stream or terminal):
        shows = Progress(time.clock, time.later)
        shows.begin("orders", ["delta:/shop/orders (exactly once)"], "/shop/ledger.db")
        yield shows, terminal


def test_the_first_line_names_query_targets_guarantee_and_ledger(time: Time) -> None:
    with watched(time) as (_, terminal):
        assert terminal.getvalue() == "orders: into delta:/shop/orders (exactly once), ledger /shop/ledger.db\n"


def test_epochs_of_one_second_are_one_line(time: Time) -> None:
    with watched(time) as (shows, terminal):
        shows.show(Shown(11, 100, 0.5))
        for number in range(12, 32):
            time.passes(0.018)
            shows.show(Shown(number, 100, 0.018))
        assert terminal.lines == ["orders: epoch 11  100 rows  500 ms"]
        time.passes(1)
        assert terminal.lines[1:] == ["orders: epochs 12..31  2,000 rows  18 ms each"]
        time.passes(10)
        shows.show(Shown(32, 1, 12.3))
        assert terminal.lines[2:] == ["orders: epoch 32  1 row  12.3 s"]


def test_skipped_replays_and_recovered_sinks_are_named(time: Time) -> None:
    with watched(time) as (shows, terminal):
        shows.show(Shown(4, recovered=("delta:orders brought to epoch 4, which the other sinks held already",)))
        shows.show(Shown(5))
        shows.show(Shown(6, 10, 0.002))
        shows.close()
        assert terminal.lines == [
            "orders: delta:orders brought to epoch 4, which the other sinks held already; replay of epoch 4 skipped",
            "orders: replay of epoch 5 skipped; epoch 6  10 rows  2 ms",
        ]


@pytest.mark.parametrize("seed", range(20))
def test_no_two_lines_come_within_a_second_and_each_epoch_is_in_one(time: Time, seed: int) -> None:
    chance = random.Random(seed)
    with watched(time) as (shows, terminal):
        count = chance.randint(1, 60)
        for number in range(count):
            shows.show(Shown(number, 1, 0.01))
            time.passes(chance.choice((0.001, 0.02, 0.3, 0.99, 1.5)))
        time.passes(1)
        assert sum(int(line.split("  ")[1].split()[0]) for line in terminal.lines) == count
        assert all(later - came > 0.999 for came, later in pairwise(terminal.came[1:])), terminal.came


def test_a_query_that_ends_shows_what_was_held_back_once(time: Time) -> None:
    with watched(time) as (shows, terminal):
        shows.show(Shown(1, 1, 0.001))
        shows.show(Shown(2, 1, 0.001))
        shows.close()
        time.passes(5)
        assert len(terminal.lines) == 2


def test_nothing_is_shown_without_a_terminal(time: Time) -> None:
    stream = io.StringIO()
    with watched(time, stream) as (shows, _):
        shows.show(Shown(1, 1, 0.001))
        shows.close()
    assert (stream.getvalue(), time.timers) == ("", [])


def test_a_notebook_is_a_terminal(time: Time) -> None:
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    with watched(time, stream):
        assert stream.getvalue().startswith("orders: into ")


@pytest.mark.parametrize(
    ("level", "handles", "switch", "shown"),
    [
        (logging.INFO, logging.INFO, "", False),
        (logging.DEBUG, logging.NOTSET, "", False),
        (logging.INFO, logging.WARNING, "", True),
        (logging.WARNING, logging.INFO, "", True),
        (logging.WARNING, logging.WARNING, "0", False),
        (logging.WARNING, logging.WARNING, "1", True),
    ],
)
def test_it_is_off_where_info_is_logged_or_the_variable_says_so(
    time: Time, monkeypatch: pytest.MonkeyPatch, level: int, handles: int, switch: str, shown: bool
) -> None:
    logger, handler = logging.getLogger("onceonly"), logging.NullHandler()
    handler.setLevel(handles)
    monkeypatch.setenv("ONCEONLY_PROGRESS", switch)
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [handler])
    before = logger.level
    logger.setLevel(level)
    try:
        with watched(time) as (shows, terminal):
            shows.show(Shown(1, 1, 0.001))
    finally:
        logger.setLevel(before)
    assert terminal.getvalue().count("\n") == 2 * shown


def test_a_handler_of_the_root_logger_counts(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("onceonly")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        with watched(time) as (_, terminal):
            assert terminal.getvalue() == ""
    finally:
        logger.setLevel(before)


def test_a_terminal_that_was_closed_stops_no_epoch(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(time, ClosedTerminal()) as (shows, _):
        shows.show(Shown(1, 1, 0.001))
        monkeypatch.setattr("sys.stderr", None)
        shows.show(Shown(2, 1, 0.001))


def test_the_timer_of_a_run_keeps_no_process_alive() -> None:
    timer = later(60, lambda: None)
    assert timer.daemon
    timer.cancel()


def test_a_run_knows_the_sinks_that_it_recovered_until_its_next_batch(tmp_path: Path) -> None:
    driver = left_behind(tmp_path).driver()
    driver.writes(2)
    assert driver.runner.events.recovered == [
        "memory:b, memory:c brought to epoch 2, which the other sinks held already"
    ]
    driver.writes(3)
    assert driver.runner.events.recovered == []
