"""Who reads sinks as of a read point sees one epoch, wherever drivers stand; who takes the newest of each does not."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from onceonly_checkpoints.epoch import EpochRecord
from onceonly_lab.explorer.bounds import BOUNDS
from onceonly_lab.explorer.search import Search, lines, search
from onceonly_lab.model import invariants
from onceonly_lab.model.invariants import Breach, shown
from onceonly_lab.model.parts import Target
from onceonly_lab.model.world import Bound

READERS = replace(BOUNDS["readers"], unknowns=0, ledgers=0)


@pytest.mark.parametrize(
    "bound", [READERS, pytest.param(BOUNDS["readers"], marks=pytest.mark.lab)], ids=["two drivers", "and what is lost"]
)
def test_a_reader_at_a_point_sees_one_epoch_in_every_world_and_a_naive_one_does_not(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, newest = set[int](), invariants.newest_point

    def told(*asked):
        point = newest(*asked)
        points.add(point.epoch if point else 0)
        return point

    monkeypatch.setattr(invariants, "newest_point", told)
    searched = Search(bound)
    found = searched.run()
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert points == {0, 1, 2}
    worlds = [cast(tuple[Target, ...], targets) for targets in searched.targets()]
    naive = [{shown(target, found.bound.records) for target in targets} for targets in worlds]
    assert any(len(seen) > 1 for seen in naive)


def test_a_view_that_does_not_ask_for_receipts_shows_a_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpochRecord, "lacking", property(lambda record: []))
    found = search(BOUNDS["readers"])
    assert found.violation is not None
    assert found.violation.name is Breach.SPLIT, "\n".join(lines(found))
