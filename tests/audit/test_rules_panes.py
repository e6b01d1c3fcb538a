"""Rules over windows: that they go on from epoch to epoch, and that the state that stands is that of the newest."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.audit.histories import PIPELINE, epoch_after, ledger_of, relinked, sink_of
from tests.cli.scores import Scores
from typer.testing import CliRunner

from onceonly.audit import Facts, Finding, Verdict, gather, judge
from onceonly.audit.facts import Content, with_windows
from onceonly.cli.app import app
from onceonly.runtime import operator
from onceonly.windows.read_results import StateFacts, read_state
from onceonly_checkpoints import chain
from onceonly_checkpoints.digests import Digest
from onceonly_checkpoints.epoch import Epoch
from onceonly_checkpoints.epoch_time import EpochWindows
from onceonly_checkpoints.model import Adoption, AdoptionKind

STATE = EpochWindows("whole", "meaning", Digest(3, 3, 3), 10, 0, 1000)


def line(second: EpochWindows | None, first: EpochWindows | None = STATE, **said: Any) -> list[Epoch]:
    one = epoch_after(None, 10, panes=first)
    return [one, epoch_after(one, 7, panes=second, **said)]


def of_panes(epochs: Sequence[Epoch], state: Digest | None = None) -> list[Finding]:
    facts = Facts(PIPELINE, (replace(sink_of(epochs), state=StateFacts(state)),), ledger_of(epochs))
    return [finding for finding in judge(facts).findings if finding.code in {"A175", "A176"}]


# ---- from epoch to epoch


@pytest.mark.parametrize(
    ("changed", "evidence"),
    [
        ({"result_definition": "another"}, "mean something else"),
        ({"definition": "another"}, "trigger or lateness changed with epoch 2, and epoch 1 left 3 windows open"),
        ({"clock": 999}, "ran to 1000, those of epoch 2 to 999"),
        ({"since": 2}, "counts state from epoch 2 on, epoch 1 from 1"),
    ],
)
def test_windows_that_the_epoch_before_does_not_allow_are_found(changed: dict[str, Any], evidence: str) -> None:
    [found] = of_panes(line(replace(STATE, **changed)))
    assert (found.code, found.epoch, found.verdict) == ("A175", 2, Verdict.IN_DOUBT)
    assert evidence in found.evidence


def test_windows_that_are_gone_are_found() -> None:
    [found] = of_panes(line(None))
    assert found.evidence == "epoch 1 says 3 windows open, epoch 2 says nothing of windows"


@pytest.mark.parametrize(
    "epochs",
    [
        line(replace(STATE, open=Digest(5, 5, 5), clock=1000)),
        line(replace(STATE, definition="another"), replace(STATE, open=Digest(0))),
        line(STATE, None),
        line(STATE, adoption=Adoption(AdoptionKind.ACCEPT_CHANGE)),
        line(STATE.given_up(2), adoption=Adoption(AdoptionKind.RESET_PANES)),
    ],
)
def test_windows_that_go_on_are_not_found(epochs: list[Epoch]) -> None:
    assert of_panes(epochs) == []


def test_a_new_series_begins_windows_anew() -> None:
    one, two = line(replace(STATE, result_definition="another", clock=1, since=1))
    assert of_panes(relinked([one, replace(two, series=2, replaces=(1, 1))])) == []


@pytest.mark.parametrize(
    ("kind", "panes"),
    [
        (AdoptionKind.ACCEPT_CHANGE, replace(STATE, open=Digest(2, 2, 2))),
        (AdoptionKind.ACCEPT_CHANGE, STATE.given_up(2)),
        (AdoptionKind.RESET_PANES, STATE),
    ],
)
def test_an_operators_epoch_leaves_windows_alone_or_gives_all_of_them_up(
    kind: AdoptionKind, panes: EpochWindows
) -> None:
    [found] = of_panes(line(panes, adoption=Adoption(kind)))
    assert "is an operator's and changed what is open" in found.evidence


# ---- the state that stands


@pytest.mark.parametrize(
    ("state", "evidence"),
    [
        (Digest(2, 1, 1), "2 windows stand, and epoch 2 left 3"),
        (Digest(3, 4, 3), "3 windows stand, as many as epoch 2 left, and others"),
    ],
)
def test_state_that_the_newest_epoch_did_not_leave_is_found(state: Digest, evidence: str) -> None:
    [found] = of_panes(line(STATE), state)
    assert (found.code, found.epoch, found.evidence) == ("A176", 2, evidence)


def test_state_that_stands_as_it_was_left_is_not_found() -> None:
    assert of_panes(line(STATE), STATE.open) == []
    assert of_panes(line(STATE)) == []


@pytest.fixture
def scores(tmp_path: Path) -> Scores:
    return Scores(tmp_path / "scores").writes([("a", 1, 5), ("b", 2, 7)], [("a", 12, 4), ("c", 15, 1), ("d", 21, 1)])


def read(scores: Scores) -> Digest | None:
    keeper = scores.sinks()[1]
    keeper.open("orders")
    found = read_state(keeper, [marker.epoch for marker, _ in keeper.history()])
    assert found is not None
    return found.digest


def judged(scores: Scores) -> list[Finding]:
    sinks = scores.sinks()
    facts = gather(scores.ledger, "orders", sinks)
    found = judge(replace(facts, sinks=with_windows(facts.sinks, sinks))).findings
    return [one for one in found if one.code in {"A175", "A176", "A177", "A178"}]


def test_state_that_was_really_written_hashes_to_what_its_epochs_say(scores: Scores) -> None:
    for rows in ([("a", 13, 1), ("a", 22, 1)], [("b", 40, 1)]):
        scores.writes(rows)
        head = scores.ledger.head("orders")
        assert head is not None
        assert head.epoch.windows is not None
        assert read(scores) == head.epoch.windows.open
    assert judged(scores) == []


def test_the_content_of_state_is_told_by_its_hash_and_cannot_be_told_without_one(scores: Scores) -> None:
    """Rows of state replace one another: no sink gives them back by epoch, and no deep audit would ever end with 0."""
    scores.writes([("a", 13, 1), ("a", 22, 1)])
    sinks = scores.sinks()
    facts = gather(scores.ledger, "orders", sinks)
    results, keeper = with_windows(facts.sinks, sinks)
    assert keeper.state is not None
    assert keeper.state.digest is not None

    def said(state: StateFacts | None) -> tuple[list[str], Verdict, int]:
        deep = replace(keeper, state=state, content=Content({}, "its rows replace one another"))
        found = judge(replace(facts, sinks=(results, deep)))
        codes = [finding.code for finding in found.findings if finding.code in {"A109", "A129", "A176", "A178"}]
        return codes, found.verdict, found.exit_code

    assert said(keeper.state) == ([], Verdict.EXACTLY_ONCE, 0)
    assert said(StateFacts(keeper.state.digest + Digest(0, 1))) == (["A176"], Verdict.IN_DOUBT, 1)
    for unread, more in ((None, []), (StateFacts(), []), (StateFacts(why="refused"), ["A178"])):
        assert said(unread) == (["A109", *more], Verdict.CANNOT_TELL, 3), unread


def test_a_sink_of_results_is_not_asked_for_state(scores: Scores) -> None:
    results = scores.sinks()[0]
    results.open("orders")
    assert read_state(results, [marker.epoch for marker, _ in results.history()]) is None


def test_what_a_running_driver_changes_meanwhile_is_not_judged(scores: Scores) -> None:
    keeper = scores.sinks()[1]
    keeper.open("orders")
    before = [marker.epoch for marker, _ in keeper.history()]
    scores.writes([("a", 24, 1)])
    assert read_state(keeper, before) == StateFacts()


def test_a_row_that_somebody_changed_is_found_and_the_way_out_works(scores: Scores) -> None:
    log = scores.sinks()[1].store._log
    rows = log[-1].rows
    assert rows is not None
    changed = rows.to_pylist()
    changed[0]["body"] = "[]"
    log[-1] = replace(log[-1], rows=type(rows).from_pylist(changed, schema=rows.schema))
    [found] = judged(scores)
    assert found.code == "A176"
    printed = re.search(r"onceonly (recover reset-windows .*--accept-loss)", found.remedy)
    assert printed
    result = CliRunner().invoke(app, [*shlex.split(printed[1]), "--yes"])
    assert result.exit_code == 0, result.output
    assert "and those of 1 window that cannot be read" in result.output
    assert judged(scores) == []


def test_giving_windows_up_is_told_beside_the_verdict(scores: Scores) -> None:
    operator.reset_panes(scores.sinks(), scores.ledger, "orders", Adoption(AdoptionKind.RESET_PANES, last=2, first=2))
    result = judge(gather(scores.ledger, "orders", scores.sinks()))
    assert "open windows of epoch 2 given up, accepted" in result.text
    assert chain.sound(scores.ledger.head("orders").epoch)  # type: ignore[union-attr]
