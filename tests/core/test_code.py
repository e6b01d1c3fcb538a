"""A replay under other code is said once, with the epoch from which the new code applies; an upgrade alone is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.stories import adoption, at, cut, offer
from tests.core.test_coordinator import NEXT, TWO, Machine

from onceonly.machine import commands as c
from onceonly.machine.callback_rules import ids_forgotten
from onceonly.machine.facts import Happening, Offer
from onceonly.runtime.events import EventLog
from onceonly_checkpoints.code_version import Code, PlanFingerprint
from onceonly_checkpoints.digests import SEEN_IDS, Digest, OutputDigest
from onceonly_checkpoints.epoch import Epoch, ResumePoint
from onceonly_checkpoints.ledger import EventKind
from onceonly_checkpoints.ledger.sql import SqlLedger

PLAN = PlanFingerprint(1, "4.2", "3.11", "0" * 16)
OTHER = replace(PLAN, plan="1" * 16)
UPGRADED = replace(OTHER, spark="4.3")
BY_PYTHON = replace(OTHER, python="3.12", functions="2" * 16)
Start = Callable[[Code, Code], Machine]
CHANGED = (EventKind.PLAN_CHANGED, EventKind.WARNED)


def by(code: Code, epoch: Epoch = TWO) -> Epoch:
    assert epoch.lineage is not None
    return replace(epoch, lineage=replace(epoch.lineage, version=code.version, plan=code.plan))


def under(code: Code, offered: Offer) -> Offer:
    return replace(offered, lineage=replace(offered.lineage, version=code.version, plan=code.plan))


def said(machine: Machine) -> list[Happening]:
    kinds = (*CHANGED, EventKind.PLAN_NOT_COMPARABLE)
    return [happening for happening in machine.state.happenings if happening.kind in kinds]


def skipping(before: Code, now: Code, **more: object) -> Machine:
    wrote = by(before)
    again = under(now, offer(TWO.written, 1, **more))
    return Machine(again).opens(wrote).hears(c.Recollected((wrote,)))


def following(before: Code, now: Code) -> Machine:
    return Machine(under(now, NEXT)).opens(by(before))


def test_a_skip_under_other_code_is_warned_of_with_the_epoch_from_which_it_applies() -> None:
    event, warning = said(skipping(Code("a", PLAN), Code("b", OTHER)))
    assert (event.kind, warning.kind) == CHANGED
    assert event.epoch == warning.epoch == TWO.number + 1
    assert warning.reason.startswith('[ONCE-W711] Pipeline "orders" replays an epoch of version a (plan 1-4.2-3.11-0')
    assert "version b (plan 1-4.2-3.11-1111111111111111) applies from epoch 3" in warning.reason


def test_an_ordinary_start_of_other_code_is_an_event_and_no_warning() -> None:
    [event] = said(following(Code("a", PLAN), Code("b", OTHER)))
    assert event.kind is EventKind.PLAN_CHANGED
    assert event.reason.endswith("applies from epoch 3")


@pytest.mark.parametrize("start", [skipping, following])
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Code("a", PLAN), Code("b", PLAN)),
        (Code("a", PLAN), Code("a", UPGRADED)),
        (Code("a", PLAN), Code("a", BY_PYTHON)),
        (Code(), Code("a", PLAN)),
    ],
    ids=["another version of one plan", "Spark alone", "Python alone", "nothing was noted"],
)
def test_code_that_did_not_change_is_not_mentioned(start: Start, before: Code, now: Code) -> None:
    assert said(start(before, now)) == []


@pytest.mark.parametrize("start", [skipping, following])
@pytest.mark.parametrize("upgraded", [UPGRADED, BY_PYTHON], ids=["Spark", "Python"])
def test_plans_of_two_lines_are_one_event_where_no_version_tells(start: Start, upgraded: PlanFingerprint) -> None:
    [event] = said(start(Code("", PLAN), Code("", upgraded)))
    assert event.kind is EventKind.PLAN_NOT_COMPARABLE


@pytest.mark.parametrize("start", [skipping, following])
def test_another_plan_under_one_version_is_warned_of(start: Start) -> None:
    warned = [one.reason[:11] for one in said(start(Code("a", PLAN), Code("a", OTHER))) if one.kind is EventKind.WARNED]
    assert "[ONCE-W712]" in warned


def test_the_code_of_the_last_batch_is_compared_across_what_an_operator_accepted() -> None:
    wrote = by(Code("", PLAN))
    ours = adoption(wrote, "start", at(25))
    machine = Machine(under(Code("", OTHER), offer(cut(25, 30), 2))).opens(ours, descent=())
    assert [one.kind for one in said(machine)] == [EventKind.PLAN_CHANGED]


@pytest.mark.parametrize(
    ("now", "cause"),
    [
        (Code("b", OTHER), "the code changed: version a (plan"),
        (Code("b", PLAN), "a static table or a function that the plan does not show changed"),
        (Code(), "the query's code or its static tables changed"),
    ],
)
def test_state_that_parts_from_the_rows_names_the_code_where_it_is_known(now: Code, cause: str) -> None:
    machine = skipping(Code("a", PLAN), now, stateful=True).hears(c.Executed(Digest(1, 2, 3)))
    refusal = machine.state.refusal
    assert refusal is not None
    assert refusal.code == "E215"
    assert str(dict(refusal.details)["cause"]).startswith(cause)


def test_what_is_said_once_is_not_noted_again(tmp_path: Path) -> None:
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    ledger.open()
    log = EventLog((), ledger)
    told: Sequence[Happening] = said(skipping(Code("a", PLAN), Code("b", OTHER)))
    for _ in range(3):
        log.note("orders", told, 1)
    log.note("orders", said(following(Code("a", PLAN), Code("b", OTHER))), 1)
    assert [event.kind for event in ledger.events("orders")] == list(CHANGED)
    ledger.close()


def test_what_the_user_must_act_on_is_logged_as_a_warning_and_all_else_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = SqlLedger(str(tmp_path / "ledger.db"))
    ledger.open()
    with caplog.at_level(logging.INFO, logger="onceonly"):
        EventLog((), ledger).note("orders", [Happening(kind, f"of {kind.value}") for kind in EventKind], 1)
    ledger.close()
    level = {kind: record.levelno for kind, record in zip(EventKind, caplog.records, strict=True)}
    loud = {kind for kind, at in level.items() if at == logging.WARNING}
    assert loud == {
        EventKind.WARNED,
        EventKind.LATE,
        EventKind.QUARANTINED,
        EventKind.TIME_HELD,
        EventKind.BEHIND,
    }
    assert {level[kind] for kind in set(EventKind) - loud} == {logging.INFO}


def test_another_key_of_ids_is_warned_of_across_what_an_operator_accepted_and_another_spelling_is_not() -> None:
    def keyed(epoch: Epoch, said: str) -> Epoch:
        outputs = (OutputDigest(SEEN_IDS, ("memory:ids",), "", Digest(0), definition=said),) if said else ()
        return replace(epoch, outputs=outputs)

    two, three = keyed(TWO, "key=['id']"), replace(TWO, number=3)
    accepted = replace(adoption(TWO, "drop-sink", at(20)), carried=replace(TWO.resume_point, ids="key=['id']"))
    cases = {
        "another one": (two, "key=['id', 'a']", True),
        "behind a decision": (accepted, "key=['id', 'a']", True),
        "the same": (two, "key=['id']", False),
        "in capitals": (two, "key=['ID']", False),
        "none any more": (two, "", False),
        "none before": (TWO, "key=['id']", False),
        "the first epoch": (None, "key=['id']", False),
    }
    found = {case: ids_forgotten("orders", last, keyed(three, said)) for case, (last, said, _) in cases.items()}
    assert {case: bool(warned) for case, warned in found.items()} == {case: told for case, (*_, told) in cases.items()}
    [warning] = found["another one"]
    assert warning.reason.startswith("[ONCE-W713] Pipeline \"orders\" makes ids by key=['id', 'a'] from epoch 3 on")
    assert ResumePoint.from_json(accepted.resume_point.to_json()).ids == "key=['id']"
