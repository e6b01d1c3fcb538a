"""The search in arrays finds what a plain search finds: worlds, ends, violations."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from onceonly_lab.checker import Anomaly
from onceonly_lab.explorer.lone import Judge, Lone
from onceonly_lab.explorer.moves import Codes, MoveTable
from onceonly_lab.explorer.search import Search, described
from onceonly_lab.model import invariants
from onceonly_lab.model.parts import Kind
from onceonly_lab.model.rules import Rule
from onceonly_lab.model.spark import Damage, Source
from onceonly_lab.model.world import Bound

P, D, K = Kind.POSTGRES, Kind.DELTA, Kind.KAFKA


class Plain(NamedTuple):
    states: int
    transitions: int
    depth: int
    ends: set[tuple[object, ...]]
    violations: set[Anomaly]


def plainly(bound: Bound) -> Plain:
    """A search that needs no explanation. Goes to the end of the level in which something is first broken."""
    moves = MoveTable(bound)
    lone = Lone(moves, Judge(moves.parts, bound))
    seen, level = {moves.start}, [moves.start]
    ends: set[tuple[object, ...]] = set()
    transitions = depth = 0
    violations: set[Anomaly] = set()
    while level and not violations:
        found: list[Codes] = []
        for codes in level:
            after = [moves.after(codes, move) for move in moves.all(codes)]
            transitions += len(after)
            if not after:
                ends.add(moves.parts.decode(codes))
            for one in after:
                if one not in seen:
                    seen.add(one)
                    found.append(one)
        for codes in found:
            parts = moves.parts.decode(codes[: bound.slots[0]])
            violation = invariants.of_world(bound, parts) or lone.judge(codes)
            if violation is not None:
                violations.add(violation.name)
        level = found
        depth += bool(found)
    return Plain(len(seen), transitions, depth, ends, violations)


@pytest.mark.lab
@pytest.mark.parametrize(
    "bound",
    [
        Bound((P,), records=1, drivers=2, unknowns=1),
        Bound((K,), records=1, drivers=2, unknowns=1, ledgers=1),
        Bound((D,), records=1, drivers=2, unknowns=0, fine=True),
        Bound((P, D), records=1, drivers=2, unknowns=0),
        Bound((K,), records=2, drivers=2, unknowns=0, damages=(Damage.ROLLED_BACK,), source=Source(files=True)),
        Bound((Kind.PUTS,), records=2, drivers=2, unknowns=1, deterministic=True, alone=True),
        pytest.param(Bound((P,), records=2, drivers=2, unknowns=1), marks=pytest.mark.lab),
        pytest.param(Bound((D,), records=1, drivers=3, unknowns=0, fine=True), marks=pytest.mark.lab),
        pytest.param(
            Bound((P,), records=2, drivers=2, unknowns=0, damages=(Damage.DELETED, Damage.COPIED)),
            marks=pytest.mark.lab,
        ),
    ],
    ids=described,
)
def test_every_world_and_every_end_is_that_of_a_plain_search(bound: Bound) -> None:
    plain, search = plainly(bound), Search(bound)
    found = search.run()
    assert (found.states, found.transitions, found.depth) == (plain.states, plain.transitions, plain.depth)
    assert search.ends() == plain.ends
    assert (found.violation, plain.violations) == (None, set())


@pytest.mark.parametrize(
    "bound",
    [
        Bound((P,), records=1, unknowns=0, off=frozenset({Rule.OWNER})),
        Bound((P,), records=1, drivers=1, unknowns=1, off=frozenset({Rule.ONE_COPY})),
        Bound((K,), records=1, unknowns=1, off=frozenset({Rule.SETTLED})),
        Bound((P, D), records=1, unknowns=0, off=frozenset({Rule.WHOLE})),
    ],
    ids=described,
)
def test_what_is_broken_first_is_one_of_what_a_plain_search_finds_at_that_depth(bound: Bound) -> None:
    plain, found = plainly(bound), Search(bound).run()
    assert found.violation is not None
    assert found.violation.name in plain.violations
    assert found.depth == plain.depth
