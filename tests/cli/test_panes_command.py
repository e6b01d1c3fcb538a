"""``windows show`` and ``recover reset-windows``: open windows from their state, and the cost of giving them up."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Run, assert_answerless, document
from tests.cli.scores import Event, Scores
from tests.panes.making import made

from onceonly.cli.windows import shown as window_row
from onceonly.errors import OnceOnlyError
from onceonly.protocol.capabilities import OpenWindow, StateRow
from onceonly.runtime import operator
from onceonly.windows import AtCount, AtWatermark
from onceonly_checkpoints.ledger.sql import SqlLedger
from onceonly_checkpoints.model import Adoption, AdoptionKind

FIRST: list[Event] = [("a", 1, 5), ("b", 2, 7), ("a", 3, 1), ("b", 11, 1)]
SECOND: list[Event] = [("a", 4, 100), ("a", 12, 4), ("c", 25, 2), ("c", 26, 2)]


@pytest.fixture
def scores(tmp_path: Path) -> Scores:
    """Of the windows from 10 and 20 on nothing was written; one row came too late."""
    return Scores(tmp_path / "scores").writes(FIRST, SECOND)


@pytest.fixture
def at(run: Run, scores: Scores) -> Run:
    def invoke(*arguments: str) -> object:
        return run(*arguments, ONCEONLY_LEDGER=str(scores.root / "ledger.db"))

    return invoke  # type: ignore[return-value]


# ---- showing


def test_what_is_open_is_shown_by_what_closes_first(at: Run) -> None:
    found = document(at("windows", "show", "orders", "-o", "json"))
    assert (found["epoch"], found["open"], found["counted"], found["dropped"]) == (2, 1, 1, 1)
    assert (found["unit"], found["lower"], found["closed"]) == ("integer", 26, 26)
    assert found["windows"] == [
        {
            "key": ["c"],
            "start": 20,
            "end": 30,
            "epoch": 2,
            "rows": 2,
            "panes": 0,
            "passed": False,
            "wake_clock": None,
            "wake_time": 30,
        }
    ]


def test_people_read_a_line_for_each_window_and_a_summary(at: Run) -> None:
    result = at("windows", "show", "--query", "orders")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ['["c"]', "20", "30", "2", "0", "no", "when", "complete", "until", "30"] in lines
    assert ["open", "1", "window", "by", "epoch", "2"] in lines
    assert "dropped 1 row in no window, as it was closed or they have no time" in map(" ".join, lines)
    assert ["complete", "until", "26"] in lines
    assert ["closed", "through", "26"] in lines


def test_a_window_that_had_panes_says_how_many_and_how_many_rows_came_since(run: Run, tmp_path: Path) -> None:
    early = Scores(tmp_path / "early", trigger=AtWatermark(early=AtCount(2)), allowed_lateness=10)
    early.writes([("a", 1, 5), ("a", 2, 7)], [("a", 3, 1)], [("b", 11, 1)])
    result = run("windows", "show", "orders", "-o", "json", "--ledger", str(tmp_path / "early" / "ledger.db"))
    told = {one["key"][0]: one for one in document(result)["windows"]}
    assert (told["a"]["rows"], told["a"]["panes"], told["a"]["passed"], told["a"]["wake_time"]) == (0, 2, True, 20)
    assert (told["b"]["rows"], told["b"]["panes"], told["b"]["passed"], told["b"]["wake_time"]) == (1, 0, False, 20)


@pytest.mark.parametrize("key", ['"c"', '["c"]', ' [ "c" ] '])
def test_windows_of_one_key_are_asked_for_by_its_value(at: Run, scores: Scores, key: str) -> None:
    scores.writes([("a", 27, 1), ("b", 28, 1)])
    found = document(at("windows", "show", "orders", "-o", "json", "--key", key))
    assert [one["key"] for one in found["windows"]] == [["c"]]
    assert found["counted"] == 3


def test_no_more_are_shown_than_was_asked_for(at: Run, scores: Scores) -> None:
    scores.writes([("a", 27, 1), ("b", 28, 1)])
    found = document(at("windows", "show", "orders", "-o", "json", "--limit", "2"))
    assert ([one["key"] for one in found["windows"]], found["counted"]) == ([["a"], ["b"]], 3)


def test_a_table_that_holds_other_windows_than_the_epoch_says_ends_with_1(at: Run, scores: Scores) -> None:
    scores.writes([("a", 27, 1), ("b", 28, 1)])
    log = scores.sinks()[1].store._log
    log[-1] = replace(log[-1], rows=None)
    result = at("windows", "show", "orders")
    assert result.exit_code == 1, result.output
    assert "onceonly audit --deep" in result.stdout


def test_a_key_that_is_no_json_is_refused_and_the_way_out_is_one(at: Run) -> None:
    result = at("windows", "show", "orders", "--key", "ann")
    assert_answerless(result, "--key ann is not JSON")
    printed = re.findall(r"(--key '[^']*')", result.stderr)
    assert len(printed) == 2
    for way in printed:
        assert at("windows", "show", "orders", *shlex.split(way)).exit_code == 0


def test_a_pipeline_without_windows_is_told_so(on: Run) -> None:
    assert_answerless(on("windows", "show", "orders"), "has no windows")
    assert_answerless(on("recover", "reset-windows", "orders", "--accept-loss"), "nothing to give up")


def test_state_that_nobody_can_read_names_its_window_and_a_next_step() -> None:
    with pytest.raises(OnceOnlyError, match='key \\["a"\\] from 10 on cannot be read') as refused:
        window_row(OpenWindow(StateRow('["a"]', 10, 20, "[]", 3), None, 20))
    assert "onceonly audit --deep" in str(refused.value)


def test_showing_changes_nothing(at: Run, scores: Scores) -> None:
    before = [sink.store.newest(sink._writer) for sink in _opened(scores)]
    at("windows", "show", "orders")
    assert [sink.store.newest(sink._writer) for sink in _opened(scores)] == before


def _opened(scores: Scores) -> list:  # type: ignore[type-arg]
    found = scores.sinks()
    for sink in found:
        sink.open("orders")
    return found


# ---- the epoch in words


def test_an_epoch_says_its_windows(at: Run) -> None:
    assert re.search(r"panes +1 window open, 1 row dropped", at("epochs", "show", "2", "--query", "orders").stdout)


# ---- giving up


def test_what_would_be_lost_is_said_before_it_is_accepted(at: Run, scores: Scores) -> None:
    refused = at("recover", "reset-windows", "--query", "orders")
    assert_answerless(refused, "1 window with 2 rows since the last result", "--accept-loss")
    planned = at("recover", "reset-windows", "--query", "orders", "--accept-loss")
    assert planned.exit_code == 4
    assert "1 window with 2 rows since the last result" in planned.stdout
    assert "Nothing was changed" in planned.stderr
    assert scores.ledger.head("orders").epoch.number == 2  # type: ignore[union-attr]


def test_after_it_no_window_is_open_and_rows_that_come_begin_from_nothing(at: Run, scores: Scores) -> None:
    planned = at("recover", "reset-windows", "orders", "--accept-loss", "--reason", "wrong zone")
    done = at(*shlex.split(planned.stderr.splitlines()[-1])[1:])
    assert done.exit_code == 0, done.output
    assert "epoch 3 adopted: no window of orders is open" in done.stdout
    head = scores.ledger.head("orders")
    assert head is not None
    assert head.epoch.windows is not None
    assert (head.epoch.windows.open.rows, head.epoch.windows.since) == (0, 3)
    assert head.epoch.windows.open.high == head.epoch.windows.open.low == 0
    found = document(at("windows", "show", "orders", "-o", "json"))
    assert (found["open"], found["counted"], found["windows"], found["dropped"]) == (0, 0, [], 1)
    scores.writes([("c", 27, 40)], [("d", 31, 1)])
    assert [result for result in scores.results() if result[1] == 20] == [("c", 20, 40, 0)]
    assert at("windows", "show", "orders").exit_code == 0
    assert scores.ledger.head("orders").epoch.windows.since == 3  # type: ignore[union-attr]
    assert at("recover", "reset-windows", "orders", "--accept-loss", "--yes").exit_code == 0


def test_with_nothing_open_there_is_nothing_to_give_up(at: Run) -> None:
    assert at("recover", "reset-windows", "orders", "--accept-loss", "--yes").exit_code == 0
    assert_answerless(at("recover", "reset-windows", "orders", "--accept-loss", "--yes"), "nothing to give up")


def test_a_plan_about_another_epoch_is_not_carried_out(scores: Scores) -> None:
    sinks, ledger = scores.sinks(), SqlLedger(str(scores.root / "ledger.db"))
    for shown in (1, 0):
        with pytest.raises(OnceOnlyError, match=f"is at epoch 2, and the plan was for epoch {shown}"):
            operator.reset_panes(sinks, ledger, "orders", Adoption(AdoptionKind.RESET_PANES, last=shown))
    ledger.close()


def test_a_driver_that_runs_is_fenced_out(at: Run, scores: Scores) -> None:
    before = scores.sinks()[1]
    before.open("orders")
    fence = before.fence()
    assert at("recover", "reset-windows", "orders", "--accept-loss", "--yes").exit_code == 0
    after = before.fence()
    assert fence is not None
    assert after is not None
    assert after.generation > fence.generation


def test_state_that_somebody_changed_stops_the_query_and_the_printed_way_out_goes_on(at: Run, scores: Scores) -> None:
    log = scores.sinks()[1].store._log
    rows = log[-1].rows
    assert rows is not None
    damaged = rows.set_column(rows.schema.get_field_index("body"), "body", [["{"] * rows.num_rows])
    log[-1] = replace(log[-1], rows=damaged)
    with pytest.raises(OnceOnlyError) as refused:
        scores.writes([("c", 28, 1)])
    assert refused.value.code == "E226"
    scores._number -= 1  # that batch was not written: it is offered again
    rebuilt, shown, given_up = re.findall(r"onceonly (?:recover|windows) .*", refused.value.remedy)
    assert "rebuild" in rebuilt  # through Spark: integration/test_panes_again.py
    assert_answerless(at(*shlex.split(shown)[1:]), '["c"]')
    assert at(*shlex.split(given_up)[1:], "--yes").exit_code == 0
    scores.writes([("c", 28, 1)], [("d", 31, 1)])
    assert [result for result in scores.results() if result[1] == 20] == [("c", 20, 1, 0)]


def test_too_many_windows_stop_the_query_until_more_are_allowed_and_the_printed_command_shows_them(
    run: Run, tmp_path: Path
) -> None:
    few = Scores(tmp_path / "few", max_open=2).writes([("a", 1, 5)])
    with pytest.raises(OnceOnlyError) as refused:
        few.writes([("b", 2, 1), ("c", 3, 1)])
    assert refused.value.code == "E527"
    printed = re.search(r"onceonly windows show [^\n]*", refused.value.remedy)
    assert printed
    shown = run(*shlex.split(printed[0])[1:])
    assert shown.exit_code == 0, shown.output
    assert '["a"]' in shown.stdout
    few._number -= 1  # that batch was not written: it is offered again
    few.definition = made(max_open=3)
    few.writes([("b", 2, 1), ("c", 3, 1)], [("d", 31, 1)])
    assert [result[:3] for result in few.results()] == [("a", 0, 5), ("b", 0, 1), ("c", 0, 1)]


# ---- decisions that move the position


def test_the_position_is_not_moved_under_open_windows_and_both_ways_on_work(at: Run, scores: Scores) -> None:
    typed = ("recover", "adopt", "orders", "--start", '{"topic":{"0":5}}')
    refused = at(*typed, "--yes")
    assert_answerless(refused, "ONCE-E142", "--start moves the position, and 1 window open", "queryName(...)")
    printed = re.search(r"(onceonly recover reset-windows [^;]*--accept-loss)", refused.stderr)
    assert printed
    assert at(*shlex.split(printed[1])[1:], "--yes").exit_code == 0
    again = at(*typed, "--yes")
    assert again.exit_code == 0, again.output
    anew = Scores(scores.root / "anew").writes(FIRST)
    assert [result[:3] for result in anew.results()] == [("a", 0, 6), ("b", 0, 7)]


@pytest.mark.parametrize("kind", [AdoptionKind.START, AdoptionKind.CONTINUE, AdoptionKind.ACCEPT_DUPLICATES])
def test_no_kind_that_moves_the_position_passes_open_windows(scores: Scores, kind: AdoptionKind) -> None:
    head = scores.ledger.head("orders")
    assert head is not None
    with pytest.raises(OnceOnlyError, match=f"--{kind} moves the position"):
        operator.refuse_moving("orders", scores.ledger, kind, head.epoch)
    operator.refuse_moving("orders", scores.ledger, AdoptionKind.ACCEPT_CHANGE, head.epoch)


def test_who_asks_without_the_command_line_is_refused_as_well(scores: Scores) -> None:
    head = scores.ledger.head("orders")
    assert head is not None
    with pytest.raises(OnceOnlyError, match="moves the position"):
        operator.adopt(
            scores.sinks(), scores.ledger, "orders", Adoption(AdoptionKind.START), start=head.epoch.written.start
        )
