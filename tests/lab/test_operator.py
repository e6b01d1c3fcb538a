"""The operator of the simulated world reads what is printed, and obeys by the code that the commands run."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from onceonly.machine import acceptance, opening, transitions
from onceonly_lab.checker import Anomaly
from onceonly_lab.explorer.bounds import BOUNDS
from onceonly_lab.explorer.search import Search, lines, search
from onceonly_lab.model import operator
from onceonly_lab.model.invariants import Breach, of_target
from onceonly_lab.model.parts import Desk, Harm, Kind, Target
from onceonly_lab.model.spark import Damage
from onceonly_lab.model.ways import Way, printed
from onceonly_lab.model.world import Bound


def test_the_commands_of_a_message_are_read_without_what_says_where_things_are():
    text = """Next: put it back: onceonly recover rebuild-ledger --query 'my orders' --ledger sqlite:////a
  or give it up: onceonly recover adopt orders --ledger memory --accept-loss 3..4 --sink eu
  or say where: onceonly recover adopt orders --ledger memory --start OFFSETS
  or see: onceonly epochs list"""
    assert printed(text) == (
        Way("recover rebuild-ledger"),
        Way("recover adopt", ("--accept-loss", "3..4", "--sink", "eu")),
    )


def test_a_way_out_says_what_it_accepts():
    way = Way("recover adopt", ("--accept-loss", "3..4", "--sink", "eu@7"))
    assert (way.kind, way.epochs, way.sinks) == ("accept-loss", (3, 4), ("eu",))
    assert way.words == "onceonly recover adopt --accept-loss 3..4 --sink eu@7"


def written() -> Target:
    """A target with three epochs of one record each."""
    searched = Search(Bound((Kind.POSTGRES,), records=3, longest=1, drivers=1, unknowns=0))
    assert searched.run().complete
    return max((cast(Target, target) for (target,) in searched.targets()), key=lambda one: len(one.held))


def test_rows_that_an_accepted_command_named_may_be_missing_and_no_others():
    whole = written()
    hole = replace(whole, held=(whole.held[0], whole.held[2]))
    assert called(whole, Desk()) is None
    assert called(hole, Desk()) is Anomaly.LOSS
    assert called(hole, Desk(lost=(("another", 0b010),))) is Anomaly.LOSS
    assert called(hole, Desk(lost=((whole.name, 0b001),))) is Anomaly.LOSS
    assert called(hole, Desk(lost=((whole.name, 0b010),))) is Anomaly.ORDER
    assert called(hole, Desk(lost=(("", 0b010),))) is Anomaly.ORDER


def test_rows_that_an_accepted_command_named_may_come_again_and_no_others():
    whole = written()
    twice = replace(whole, held=(*whole.held, whole.held[1]))
    assert called(twice, Desk()) is Anomaly.DUP
    assert called(twice, Desk(doubled=0b101)) is Anomaly.DUP
    assert called(twice, Desk(doubled=0b010)) is Anomaly.ORDER


def called(target: Target, desk: Desk) -> object:
    found = of_target(target, desk)
    return found and found.name


@pytest.fixture
def obeyed(monkeypatch):
    """Verbs of the commands that the operator has obeyed, in any world."""
    done, obey = set[str](), operator.obey

    def told(way, *more):
        done.add(way.verb)
        return obey(way, *more)

    monkeypatch.setattr(operator, "obey", told)
    return done


RECORDS = [2, pytest.param(3, marks=pytest.mark.lab)]


@pytest.mark.parametrize("records", RECORDS)
def test_every_command_that_is_printed_for_a_lost_checkpoint_of_a_directory_leads_on(records, obeyed):
    bound = replace(BOUNDS["operator-files"], records=records, damages=(Damage.DELETED,), loses_files=False, ledgers=0)
    found = search(bound)
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert obeyed == {"recover adopt", "recover rebuild-checkpoint"}


@pytest.mark.parametrize("records", RECORDS)
def test_every_command_that_is_printed_for_a_restored_sink_leads_on(records, obeyed):
    found = search(replace(BOUNDS["restored"], records=records, ledgers=0))
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert obeyed >= {"recover adopt", "recover rewind"}


LATE = replace(BOUNDS["operator-late"], records=2, harms=(Harm.BACK_TWO,), meanwhile=(Harm.BACK_TWO,), ledgers=0)
"""By two epochs: one that lacks a single epoch gets it from the staged bytes, and nothing is accepted."""


def test_an_acceptance_covers_nothing_that_befalls_another_sink_before_it_is_given():
    found = search(LATE)
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


def test_an_acceptance_that_switches_off_unrelated_rules_is_noticed(monkeypatch):
    for module in (acceptance, opening, transitions):
        monkeypatch.setattr(module, "covers", lambda accepted, stop: accepted is not None)
    found = search(LATE)
    assert found.violation is not None
    assert found.violation.name is Breach.UNNAMED
    assert any("is set back by two epochs; the operator obeys" in step for step in found.story)


def test_a_loss_is_not_accepted_for_a_sink_that_alone_knew_of_it_and_is_set_back_meanwhile():
    late = replace(BOUNDS["operator-late"], drivers=1, harms=(Harm.BACK_TWO,), meanwhile=(Harm.BACK_ONE,))
    found = search(late)
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


CUT = {
    "one sink": BOUNDS["operator-cut-one"],
    "two sinks": replace(BOUNDS["operator-cut"], damages=(Damage.DELETED,), harms=(Harm.BACK_ONE,), drivers=1),
    "a sink is left out": replace(BOUNDS["left-out"], unknowns=0, drivers=1),
}
KILLED = {
    "one sink": {"recover adopt", "recover rewind"},
    "two sinks": {
        "recover adopt",
        "recover rewind",
        "recover resolve",
    },  # the second sink gets the decision of the first
    "a sink is left out": {"recover drop-sink", "recover resolve"},
}


@pytest.mark.lab
@pytest.mark.parametrize("where", CUT)
def test_a_command_that_is_killed_after_any_of_its_changes_leads_on_when_it_is_obeyed_again(where, monkeypatch):
    done, obey = list[tuple[str, str]](), operator.obey

    def told(way, *more):
        obeyed = obey(way, *more)
        done.append((way.verb, obeyed.words))
        return obeyed

    monkeypatch.setattr(operator, "obey", told)
    found = search(CUT[where])
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    killed = {(verb, words.rpartition("after ")[2]) for verb, words in done if "is killed after" in words}
    assert {verb for verb, _ in killed} == KILLED[where]
    assert len(killed) > len(KILLED[where])


def test_a_command_that_is_obeyed_in_one_world_twice_leads_to_one_world(monkeypatch):
    """Its owner token is drawn at random: worlds that differ in nothing else would be judged each by itself."""
    unlike, verbs, obey = list[str](), set[str](), operator.obey

    def told(way, *more):
        obeyed, again = obey(way, *more), obey(way, *more)
        verbs.add(way.verb)
        if obeyed.wreck != again.wreck:
            unlike.append(way.words)
        return obeyed

    monkeypatch.setattr(operator, "obey", told)
    assert search(CUT["two sinks"]).complete
    assert verbs >= KILLED["two sinks"]
    assert unlike == []


@pytest.mark.parametrize("drivers", [1, pytest.param(2, marks=pytest.mark.lab)])
def test_a_sink_that_the_call_leaves_out_stops_the_query_until_it_is_taken_out(drivers, obeyed):
    searched = Search(replace(BOUNDS["left-out"], unknowns=0, drivers=drivers))
    found = searched.run()
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert "E213" in searched.refusals()
    assert obeyed == {"recover drop-sink", "recover resolve", "recover adopt"}  # of what is staged nowhere any more


@pytest.mark.parametrize("drivers", [1, pytest.param(2, marks=pytest.mark.lab)])
def test_where_an_epoch_ended_is_printed_and_a_new_checkpoint_may_begin_there(drivers, obeyed):
    bound = replace(BOUNDS["operator-prunes"], records=2, harms=(), damages=(Damage.DELETED,), drivers=drivers)
    searched = Search(bound)
    found = searched.run()
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert "E203" in searched.refusals()
    assert obeyed >= {"epochs show", "recover rebuild-checkpoint"}
    text = "see its last offsets: onceonly epochs show --offsets --query orders --ledger memory"
    assert printed(text) == (Way("epochs show", ("--offsets",)),)


def test_two_commands_that_are_printed_one_after_the_other_are_read_as_one_way():
    first, second = (
        "onceonly recover rebuild-ledger --query a",
        "onceonly recover rebuild-checkpoint PATH --query a --at 1",
    )
    text = f"or, nothing is lost by: {first}\n  and after it: {second}"
    assert printed(text) == (Way("recover rebuild-ledger", then=Way("recover rebuild-checkpoint", ("--at", "1"))),)
    assert printed(text)[0].then.at == 1


def test_a_rewind_without_a_sink_also_rebuilds_the_checkpoint():
    [cut, level] = printed("onceonly recover rewind a --to 1\nonceonly recover rewind a --to 1 --sink b")
    assert (cut.at, cut.sinks, cut.cuts_back) == (1, (), True)
    assert (level.at, level.sinks, level.cuts_back) == (1, ("b",), False)
