"""Rules over the results of windows: of each window the rows, and its state while it is open, say the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.scores import Event, Scores
from tests.core.paned import Paned, Query, drawn
from tests.panes import oracle

from onceonly.audit import Facts, Finding, Verdict, gather, judge
from onceonly.audit.facts import with_windows
from onceonly.protocol.capabilities import Span
from onceonly.runtime import operator
from onceonly.windows import AtCount, AtWatermark
from onceonly.windows import read_results as read_results_module
from onceonly.windows.read_results import Results, read_results, read_state
from onceonly.windows.results import Rows, UnreadableResults
from onceonly.windows.rules.assigners import LEAST
from onceonly_checkpoints.model import Adoption, AdoptionKind
from onceonly_sinks.memory import MemorySink
from onceonly_sinks.memory.store import MemoryStore

EARLY = AtWatermark(early=AtCount(1), late=AtCount(1))
ROWS: tuple[list[Event], ...] = (
    [("a", 1, 5), ("b", 2, 7)],
    [("a", 3, 1)],
    [("a", 12, 4), ("c", 15, 1)],
    [("a", 14, 2), ("c", 16, 1)],
)
"""Closes the windows from 0 to 10, and leaves those of a and c from 10 to 20 with two results each."""


def judged(sinks: list[MemorySink], change: Callable[[Facts], Facts] = lambda facts: facts) -> list[Finding]:
    facts = gather(None, "orders", sinks)
    found = judge(change(replace(facts, sinks=with_windows(facts.sinks, sinks)))).findings
    return [one for one in found if one.code in {"A176", "A177", "A178"}]


def of_store(store: MemoryStore, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Change rows of a store by hand, or take them away."""
    for at, entry in enumerate(store._log):
        if entry.rows is not None:
            rows = [changed for row in entry.rows.to_pylist() if (changed := change(row)) is not None]
            store._log[at] = replace(entry, rows=type(entry.rows).from_pylist(rows, schema=entry.rows.schema))


def row(**said: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda one: all(one[name] == value for name, value in said.items())


def without(which: Callable[[dict[str, Any]], bool]) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    return lambda one: None if which(one) else one


def turned(which: Callable[[dict[str, Any]], bool]) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    return lambda one: {**one, "sign": -one["sign"]} if which(one) else one


HOW = {
    "discarding": {"accumulation": "discarding"},
    "accumulating": {"accumulation": "accumulating"},
    "retracting": {"accumulation": "retracting"},
    "upserts": {"accumulation": "accumulating", "results": "upserts"},
    "upserts of what is taken back": {"accumulation": "retracting", "results": "upserts"},
}


@pytest.fixture(params=HOW)
def scores(request: pytest.FixtureRequest, tmp_path: Path) -> Scores:
    return Scores(tmp_path / "scores", trigger=EARLY, **HOW[request.param]).writes(*ROWS)


def test_results_that_stand_as_they_were_written_are_not_found(scores: Scores) -> None:
    assert judged(scores.sinks()) == []


@pytest.mark.parametrize("change", [without, turned])
def test_the_newest_result_of_an_open_window_is_missed_and_so_is_its_sign(scores: Scores, change: Any) -> None:
    of_store(scores.store, change(row(team="c", pane=1, sign=1)))
    [found] = judged(scores.sinks())
    assert (found.code, found.sink, found.epoch) == ("A177", "memory:scores", 4)
    assert found.verdict is Verdict.IN_DOUBT
    assert found.evidence.startswith('the window of key ["c"] from 10 to 20: ')


def test_a_row_of_a_window_that_is_open_and_has_no_result_left_is_missed_by_its_state(scores: Scores) -> None:
    of_store(scores.store, without(row(team="c")))
    [found] = judged(scores.sinks())
    assert found.evidence == 'the window of key ["c"] from 10 to 20: by the state pane 1 stands, and no row does'


@pytest.mark.parametrize(
    ("how", "change", "evidence"),
    [
        ("retracting", without(row(team="a", pane=0, kind="-U")), "panes 0, 2 stand, and one alone may"),
        ("retracting", without(row(team="a", pane=0, kind="+I")), "pane 0 was taken back, and no row says"),
        ("retracting", turned(row(team="a", pane=0, kind="-U")), "a row of pane 0 is -U and has sign 1"),
        ("accumulating", without(row(team="a", pane=0)), "pane 0 is missing, and pane 2 stands"),
        ("discarding", without(row(team="a", pane=1)), "pane 1 is missing, and pane 2 stands"),
        ("upserts", turned(row(team="a", window_start=0, pane=2)), "a row of pane 2 is +U and has sign -1"),
    ],
)
def test_closed_windows_are_judged_by_their_rows_alone(tmp_path: Path, how: str, change: Any, evidence: str) -> None:
    scores = Scores(tmp_path / "scores", trigger=EARLY, **HOW[how]).writes(*ROWS)
    of_store(scores.store, lambda one: change(one) if one["window_start"] == 0 else one)
    [found] = judged(scores.sinks())
    assert found.code == "A177"
    assert evidence in found.evidence


def test_a_value_that_was_changed_in_an_upserted_row_is_named_where_the_state_has_it(tmp_path: Path) -> None:
    scores = Scores(tmp_path / "scores", trigger=EARLY, **HOW["upserts of what is taken back"]).writes(*ROWS)
    of_store(scores.store, lambda one: {**one, "total": 99} if one["team"] == "c" else one)
    [found] = judged(scores.sinks())
    assert found.evidence.endswith("pane 1 says [99], and by the state [2]")


def test_of_very_many_windows_the_others_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_results_module, "_MOST", 1)
    scores = Scores(tmp_path / "scores", trigger=EARLY, **HOW["discarding"]).writes(*ROWS)
    of_store(scores.store, turned(row(window_start=0)))
    others, named = judged(scores.sinks())
    assert named.evidence.startswith("the window of key ")
    assert (others.code, others.evidence) == ("A177", "1 window beside those named")


def test_windows_that_were_given_up_are_not_missed_and_those_after_them_are_judged(scores: Scores) -> None:
    accepted = Adoption(AdoptionKind.RESET_PANES, first=4, last=4)
    operator.reset_panes(scores.sinks(), scores.ledger, "orders", accepted)
    assert judged(scores.sinks()) == []
    scores.writes([("a", 18, 50)])
    assert judged(scores.sinks()) == []
    of_store(scores.store, without(row(team="a", total=50)))
    [found] = judged(scores.sinks())
    assert found.epoch == 6


def test_epochs_before_since_are_not_told(scores: Scores) -> None:
    of_store(scores.store, turned(row(team="a", window_start=0)))
    assert [one.epoch for one in judged(scores.sinks())] == [3]
    assert judged(scores.sinks(), lambda facts: replace(facts, since=4)) == []


class Mute(MemorySink):
    """Shows neither state nor rows."""

    def open_windows(self, since: int, *, key: str | None = None, limit: int | None = None) -> None:
        return None

    def read_by_epoch(self, span: Span) -> None:
        return None

    def read_current(self, span: Span) -> None:
        return None


def test_state_and_results_that_cannot_be_read_are_said(scores: Scores) -> None:
    plain = scores.sinks()
    mute: list[MemorySink] = [
        Mute(one.id, one.store, key=one._merge.key, delete_flag=one._merge.delete) for one in plain
    ]
    found = judged(mute)
    assert [(one.code, one.sink, one.evidence) for one in found] == [
        ("A178", "memory:scores", "results: the sink does not know the epoch of its rows"),
        ("A178", plain[1].id, "state: the sink does not show the state of windows"),
    ]
    assert {one.verdict for one in found} == {None}
    assert [one.sink for one in judged([plain[0], mute[1]])] == [plain[1].id]


def test_rows_that_hold_something_else_than_was_written_are_not_judged(scores: Scores) -> None:
    assert scores.definition.form.key == (("team", "string"),)
    rows = Rows(replace(scores.definition.form, key=(("team", "bigint"),)))
    sink = scores.sinks()[0]
    sink.open("orders")
    with pytest.raises(UnreadableResults, match="column team holds str, and bigint was written"):
        rows.add(1, 1, sink.rows()[0])
    with pytest.raises(UnreadableResults, match="its rows have no column window_start"):
        rows.add(1, 1, {"team": 5, "total": 3})


def test_rows_that_an_operator_took_as_they_were_are_not_judged(scores: Scores) -> None:
    of_store(scores.store, without(row(team="a", window_start=0)))
    of_store(scores.store, turned(row(team="c")))
    sink = scores.sinks()[0]
    sink.open("orders")
    epochs = [marker.epoch for marker, _ in sink.history()]
    keeper = scores.sinks()[1]
    keeper.open("orders")
    state = read_state(keeper, epochs)
    wrong, none = (read_results(sink, epochs, state, unjudged) for unjudged in (0, 4))
    assert wrong is not None
    assert wrong.wrong
    assert none == Results()


@pytest.mark.parametrize("histories", [8, pytest.param(30, marks=pytest.mark.lab)])
def test_random_histories_stand_and_a_row_that_is_taken_out_of_one_is_missed(tmp_path: Path, histories: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    for at in range(histories):
        rules, epochs = drawn(seed + at)
        rules = replace(rules, retracting=not rules.discarding)
        pipeline = Paned(tmp_path / str(at), ("a", "state"))
        Query(pipeline, rules, epochs).writes(*range(1, len(epochs) + 1))
        assert judged(pipeline.sinks()) == [], (rules, seed + at)
        rows = [one for epoch in pipeline.panes() for one in epoch]
        if rows and rules.retracting and not isinstance(rules.window, oracle.Sessions):
            gone = random.Random(seed + at).choice(rows)
            others = [row for row in rows if _window(row) == _window(gone) and row != gone]
            opened = [(json.loads(one["key"])[0], one["start"]) for one in pipeline.state()]
            of_store(pipeline.stores["a"], without(lambda one, gone=gone: one == gone))  # type: ignore[misc]
            assert bool(judged(pipeline.sinks())) == bool(others or _window(gone) in opened), (rules, seed + at)
        pipeline.ledger.close()


def _window(row: dict[str, Any]) -> tuple[str, int]:
    start = row["window_start"]
    return row["team"], LEAST if start is None else round(start.timestamp() * 1000)
