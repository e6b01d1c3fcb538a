"""What a refusal leaves behind for the commands that it prints: epochs that come again, ways that lose nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.core.stories import at, cut, epochs, offer, recorded

from onceonly.machine.acceptance import Stop
from onceonly.machine.facts import Refusal
from onceonly.runtime import remedies
from onceonly.runtime.remedies import CommandContext
from onceonly_checkpoints.ledger.sql import SqlLedger

WHERE = CommandContext("orders", " --ledger l.db")
LINE = epochs(10, 20, 30, 40)


def ledger_of(root: Path) -> SqlLedger:
    ledger = SqlLedger(str(root / "ledger.db"))
    ledger.open()
    for epoch in LINE:
        ledger.record(recorded(epoch))
    return ledger


def test_epochs_that_a_batch_repeats_are_named_from_where_it_starts_to_the_newest(tmp_path: Path) -> None:
    ledger, newest = ledger_of(tmp_path), LINE[-1]
    told = {
        "from the middle of the second": ("E203", cut(15, 50), newest, (2, 4)),
        "from the end of the third": ("E203", cut(30, 50), newest, (4, 4)),
        "from the start": ("E203", cut(None, 50), newest, (1, 4)),
        "of files that nobody can compare": ("E211", cut(15, 50), newest, (1, 4)),
        "of a series that a refresh began": ("E211", cut(15, 50), replace(newest, series=3), (3, 4)),
        "from the start, of such a series": ("E203", cut(None, 50), replace(newest, series=3), (3, 4)),
        "nothing, by a gap": ("E204", cut(15, 50), newest, (0, 0)),
        "nothing, before the first epoch": ("E203", cut(15, 50), None, (0, 0)),
    }
    found = {
        what: remedies._stop(Refusal.of(code), ledger, "orders", last, offer(slice_, 9), head=4)
        for what, (code, slice_, last, _) in told.items()
    }
    assert {what: (stop.first, stop.last) for what, stop in found.items()} == {
        what: named for what, (*_, named) in told.items()
    }
    without_a_batch = remedies._stop(Refusal.of("E203"), ledger, "orders", newest, None, head=4)
    assert (without_a_batch.first, without_a_batch.offered) == (0, None)


def test_a_rewind_is_printed_to_the_rows_that_stand_where_that_is_known() -> None:
    """By what stopped the query and, of each sink, its newest epoch and the one whose rows it holds."""
    a = "--to {} --sink memory:a".format
    told: dict[tuple[str, tuple[tuple[int, int | None], ...]], str] = {
        ("E208", ((4, 0), (4, 4))): a(0),  # made anew beside another one
        ("E208", ((0, 0), (4, 4))): a(0),  # with its markers
        ("E208", ((4, 0), (4, 0))): "",  # all of them: there is nothing to go back to
        ("E208", ((4, None), (4, 4))): "",  # rows that are no epoch's
        ("E208", ((4, 2), (4, 4))): a(2),  # restored from a dump
        ("E208", ((2, 2), (4, 4))): a(2),  # with its markers
        ("E208", ((4, 2), (4, 2))): "--to 2",
        ("E208", ((4, 2), (4, 1))): "--to 1 --sink memory:b",  # level with the other one first
        ("E208", ((4, 4), (4, 4))): "--to 4",  # all of it is there
        ("E208", ((5, 5), (4, 4))): "",  # what was accepted is in this one alone, and the other one stops nothing
        ("E209", ((4, 2), (4, 4))): a(2),
        ("E209", ((4, 4), (4, 4))): "",  # changed otherwise than by going back
    }
    found = {}
    for code, contents in told:
        sinks = ("memory:a", "memory:b")
        given = dict(zip(sinks, contents, strict=True))
        stop = Stop(code, tuple(sink for sink in sinks if sink == "memory:a" or given[sink] != (4, 4)))
        way = remedies.undo(WHERE, stop, given)
        found[code, contents] = way.partition("--ledger l.db ")[2].partition("\n")[0]
    assert found == told


def test_where_a_source_begins_is_told_beside_where_the_series_began(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    assert remedies._beginnings(ledger, "orders", 1, "").startswith("The start of its source is not known")
    beyond = remedies._beginnings(ledger, "orders", 9, "events 7")
    assert beyond == "Its source now begins at events 7."
    known = remedies._beginnings(ledger, "orders", 2, "events 7")
    assert known.startswith("Its source now begins at events 7, and your oldest epoch covers ")
    assert remedies.describe(at(10)) in known
