"""The operator of the simulated world reads what is printed, and obeys by the code that the commands run."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from onceonly.lab.checker import Anomaly
from onceonly.lab.explorer.bounds import BOUNDS
from onceonly.lab.explorer.report import lines
from onceonly.lab.explorer.search import Search, search
from onceonly.lab.model.invariants import of_target
from onceonly.lab.model.parts import RESTORED, Desk, Kind, Target
from onceonly.lab.model.spark import Damage
from onceonly.lab.model.ways import Way, printed
from onceonly.lab.model.world import Bound


def test_the_commands_of_a_message_are_read_without_what_says_where_things_are():
    text = """Next: put it back: onceonly ledger rebuild --query 'my orders' --ledger sqlite:////a
  or give it up: onceonly queries adopt orders --ledger memory --accept-loss 3..4 --sink eu
  or say where: onceonly queries adopt orders --ledger memory --start OFFSETS
  or see: onceonly epochs list"""
    assert printed(text) == (
        Way("ledger rebuild"),
        Way("queries adopt", ("--accept-loss", "3..4", "--sink", "eu")),
    )


def test_a_way_out_says_what_it_accepts():
    way = Way("queries adopt", ("--accept-loss", "3..4", "--sink", "eu@7"))
    assert (way.kind, way.epochs, way.sinks) == ("accept-loss", (3, 4), ("eu",))
    assert way.words == "onceonly queries adopt --accept-loss 3..4 --sink eu@7"


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


FILES = replace(BOUNDS["operator-files"], damages=(Damage.DELETED,), loses_files=False, ledgers=0)


def test_every_command_that_is_printed_for_a_lost_checkpoint_of_a_directory_leads_on():
    found = search(FILES)
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete


@pytest.mark.parametrize("harm", sorted(RESTORED))
def test_every_command_that_is_printed_for_a_restored_sink_leads_on(harm):
    found = search(replace(BOUNDS["restored"], harms=(harm,), ledgers=0))
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
