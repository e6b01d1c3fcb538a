"""The simulated operator obeys rewinds: every world leads on, and a rewind that is broken on purpose is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from onceonly.runtime import rewinding
from onceonly_lab.explorer.bounds import BOUNDS
from onceonly_lab.explorer.search import lines, search
from onceonly_lab.model import operator
from onceonly_lab.model.bench import BenchLedger
from onceonly_lab.model.invariants import Breach
from onceonly_lab.model.parts import Harm


@pytest.mark.parametrize(
    ("bound", "ways"),
    [
        ("rewound", {(True, False), (True, True)}),
        ("rewound-one", {(False, False), (False, True)}),
        ("rewound-both", {(True, False), (False, False)}),
    ],
)
def test_a_rewind_leads_on_whichever_sinks_were_set_back_or_made_anew_and_wherever_it_is_killed(
    bound: str, ways: set[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    done, obey = set[tuple[bool, bool]](), operator.obey

    def told(way, *more):
        obeyed = obey(way, *more)
        if way.verb == "queries rewind" and not obeyed.refused:
            done.add((bool(way.sinks), "is killed after" in obeyed.words))
        return obeyed

    monkeypatch.setattr(operator, "obey", told)
    found = search(BOUNDS[bound])
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert done == ways


def nothing(*_: object) -> None:
    """Does not do it."""


MUTANTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "receipts of before are kept": ("rewound", lambda patch: patch.setattr(rewinding, "_remember", nothing)),
    "records beyond are kept": ("rewound-one", lambda patch: patch.setattr(BenchLedger, "supersede", lambda *_: [])),
    "only the ledger is cut back": ("rewound-one", lambda patch: patch.setattr(operator, "_cut_back", nothing)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rewind_that_is_broken_on_purpose_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, breaks = MUTANTS[name]
    breaks(monkeypatch)
    found = search(BOUNDS[bound])
    assert found.violation is not None
    assert found.violation.name is Breach.UNNAMED, "\n".join(lines(found))


def test_what_a_sink_was_made_anew_lacks_is_brought_from_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    brought, bring = list[tuple[str, int]](), rewinding._bring

    def told(of, state, sink, step, rows):
        brought.append((sink.id, step.epoch.number))
        return bring(of, state, sink, step, rows)

    monkeypatch.setattr(rewinding, "_bring", told)
    found = search(replace(BOUNDS["rewound"], harms=(Harm.REPLACED,)))
    assert found.violation is None, "\n".join(lines(found))
    assert {number for _, number in brought} >= {1, 2, 3}
