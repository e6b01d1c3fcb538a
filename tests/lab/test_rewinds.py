"""The simulated operator obeys rewinds: every world leads on, and a rewind that is broken on purpose is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from onceonly.faults import Point
from onceonly.machine import event_time, opening
from onceonly.machine import rewind as machine
from onceonly.machine.facts import OpeningFacts, Reading
from onceonly.machine.rewind import CutBack, Origin, OriginKind, RewindFacts, RewindRequest, Step
from onceonly.machine.state import State
from onceonly.protocol import Batch, Prepared
from onceonly.replay import rewind
from onceonly.replay.source_check import SourceAvailability
from onceonly_checkpoints.epoch import Fence, Marker
from onceonly_lab.checker import Anomaly
from onceonly_lab.explorer.bounds import BOUNDS
from onceonly_lab.explorer.search import lines, search
from onceonly_lab.fuzzer.world import play
from onceonly_lab.model import operator
from onceonly_lab.model.bench import BenchLedger, BenchSink
from onceonly_lab.model.invariants import Breach
from onceonly_lab.model.parts import Harm, Kind, Target
from onceonly_lab.model.sinks import Raised, Wire
from onceonly_lab.schedule import Action, Fault, Loss, Schedule

LARGER = pytest.mark.lab
"""Bounds that take seconds."""


@pytest.mark.parametrize(
    ("bound", "ways"),
    [
        ("rewound-one", {(False, False), (False, True)}),
        ("rewound-both", {(True, False), (False, False)}),
        # Without a sink: what is under a new identity holds all that it held, and the rewind takes the identity alone.
        pytest.param("rewound", {(True, False), (True, True), (False, False)}, marks=LARGER),
        pytest.param("rewound-rows", {(True, False), (True, True)}, marks=LARGER),
        pytest.param("rewound-rows-one", {(False, False), (False, True)}, marks=LARGER),
        pytest.param("rewound-rows-both", {(True, False), (False, False)}, marks=LARGER),
    ],
)
def test_a_rewind_leads_on_whichever_sinks_were_set_back_or_made_anew_and_wherever_it_is_killed(
    bound: str, ways: set[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    done, obey = set[tuple[bool, bool]](), operator.obey

    def told(way, *more):
        obeyed = obey(way, *more)
        if way.verb == "recover rewind" and not obeyed.refused:
            done.add((bool(way.sinks), "is killed after" in obeyed.words))
        return obeyed

    monkeypatch.setattr(operator, "obey", told)
    found = search(BOUNDS[bound])
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert done == ways


@pytest.mark.parametrize(
    ("bound", "refused"),
    [
        ("rewound-altered", {"ONCE-E233"}),
        ("rewound-astray", {"ONCE-E232"}),
        pytest.param("rewound-files", {"ONCE-E230"}, marks=LARGER),
    ],
)
def test_a_rewind_that_would_bring_other_rows_or_lose_some_is_refused_and_what_it_prints_leads_on(
    bound: str, refused: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, obey = set[str](), operator.obey

    def told(way, *more):
        obeyed = obey(way, *more)
        if way.verb == "recover rewind" and obeyed.refused:
            codes.add(obeyed.refused.partition("]")[0].lstrip("["))
        return obeyed

    monkeypatch.setattr(operator, "obey", told)
    found = search(BOUNDS[bound])
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert codes == refused


def nothing(*_: object) -> None:
    """Does not do it."""


def unproven(_of: object, sink: BenchSink, step: Step, batch: Batch) -> Prepared:
    """Brings rows whatever their digest."""
    return sink.prepare(batch, step.epoch.number)


def unfenced(patch: pytest.MonkeyPatch) -> None:
    """Opens, and leaves the fences of before."""
    fences, opened = dict[str, Fence | None](), rewind._open

    def look_first(of: rewind.Pipeline, named: tuple[str, ...], standing: Mapping[str, int]) -> State:
        fences.update((sink.id, sink.fence()) for sink in of.sinks)
        state = opened(of, named, standing)
        for sink in of.sinks:
            assert isinstance(sink, BenchSink)
            targets = sink._bench.targets
            targets[sink.id] = replace(targets[sink.id], fence=fences[sink.id])
        return state

    patch.setattr(rewind, "_open", look_first)


def past(patch: pytest.MonkeyPatch) -> None:
    """Cuts back to where the sinks stand that lack most."""

    def cut(of: rewind.Pipeline, planned: rewind.RewindPlan) -> None:
        assert isinstance(planned.direction, CutBack)
        rewind._open(of, tuple(sink.id for sink in of.sinks), planned.reset_epochs)
        of.ledger.supersede(of.name, planned.direction.to + 1, "somebody said so")

    def beyond(facts: RewindFacts) -> CutBack:
        return CutBack(facts.request.to, tuple(number for number in facts.epochs if number > facts.request.to))

    patch.setattr("onceonly.machine.rewind.level", lambda stands: RewindRequest(min(stands.values())))
    patch.setattr(machine, "_cut_back", beyond)
    patch.setattr(rewind, "cut_back", cut)


def ask_no_chain(patch: pytest.MonkeyPatch) -> None:
    """Plans whatever epoch a sink stands on."""

    def facts(*said: object, **more: object) -> RewindFacts:
        return replace(RewindFacts(*said, **more), chains={})  # type: ignore[arg-type]

    patch.setattr(machine, "RewindFacts", facts)


def by_number(patch: pytest.MonkeyPatch) -> None:
    """Neither the plan nor the sink's own commit looks at more than the number that stands there."""
    asked = Wire._misplaced

    def misplaced(wire: Wire, target: Target, marker: Marker) -> Raised | None:
        stands = target.newest.epoch.chain if target.newest else ""
        return asked(wire, target, replace(marker, epoch=replace(marker.epoch, previous_chain=stands)))

    ask_no_chain(patch)
    patch.setattr(Wire, "_misplaced", misplaced)


def above(patch: pytest.MonkeyPatch) -> None:
    """A sink whose rows were set back says that it holds an epoch more, and is put there."""
    patch.setattr(BenchSink, "content_epoch", lambda sink: min(sink._target.content + 1, sink.look().epoch))


def stays(sink: BenchSink, fence: Fence, _: int) -> None:
    """Takes the fence, and stands where it stood."""
    sink.install(fence)


def unasked(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks for what the source is to give again."""
    patch.setattr(rewind, "_source", lambda *_, **__: SourceAvailability({}))


def patched(place: object, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(place, name, value)


MUTANTS: dict[str, tuple[str, str, Callable[[pytest.MonkeyPatch], None]]] = {
    "receipts of before are kept": ("rewound", "is refused again: E20", patched(rewind, "_remember", nothing)),
    "records beyond are kept": (
        "rewound-one",
        "is refused again: E207",
        patched(BenchLedger, "supersede", lambda *_: []),
    ),
    "only the ledger is cut back": ("rewound-one", "is refused again: E2", patched(operator, "_cut_back", nothing)),
    "the digest is not compared": ("rewound-altered", Anomaly.CROSS, patched(rewind, "_prepared", unproven)),
    "no fence": ("rewound-one", Anomaly.ZOMBIE, unfenced),
    "cut back with a sink past it": ("rewound-altered", "is refused again: E207", past),
    "another history is told by its number": ("rewound-astray", Anomaly.CROSS, by_number),
    "the plan does not ask on what a sink stands": ("rewound-astray", "is refused again: E207", ask_no_chain),
    "a sink is put above its rows": ("rewound-rows-one", Anomaly.LOSS, above),
    "a sink is put at its rows without a fence": ("rewound-rows-one", Anomaly.ZOMBIE, unfenced),
    "a sink is put nowhere": (
        "rewound-rows-one",
        "is refused again: E209",
        patched(BenchSink, "reset_to", stays),
    ),
    "nobody knows that a position was cut back": ("rewound-one", Anomaly.TIME, patched(event_time, "cut", nothing)),
    "files are not looked for": ("rewound-files", Anomaly.LOSS, unasked),
    "lost though an origin has it": (
        "rewound-altered",
        Anomaly.LOSS,
        patched(machine, "_origin", lambda *_: Origin(OriginKind.NONE)),
    ),
}
"""Each with the bound that notices it, and what it is called there."""


@pytest.mark.lab
@pytest.mark.parametrize("name", MUTANTS)
def test_a_rewind_that_is_broken_on_purpose_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, called, breaks = MUTANTS[name]
    breaks(monkeypatch)
    found = search(BOUNDS[bound])
    assert found.violation is not None
    assert found.violation.name is Breach.UNNAMED, "\n".join(lines(found))
    assert called in found.violation.words


def test_a_sink_that_is_healed_above_rows_that_were_set_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def behind(facts: OpeningFacts, reading: Reading) -> bool:
        return reading.position.epoch < opening._newest_of(facts, reading)

    monkeypatch.setattr(opening, "_is_behind", behind)
    found = search(BOUNDS["rewound-rows"])
    assert found.violation is not None
    assert found.violation.name is Anomaly.LOSS, "\n".join(lines(found))


CUT_BACK = Schedule(
    (Kind.DELTA,),
    records=4,
    cuts=(1,),
    incarnations=1,
    faults=(Fault(1, Point.RETURN_BEFORE, Action.KILL, 3),),
    losses=(Loss(2, Harm.ROWS_TWO),),
    obeys=(0,),
)
"""Of three epochs two are taken back, whose markers stay; the operator obeys what is printed first."""


def test_who_writes_behind_a_rewind_notes_that_time_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(CUT_BACK)
    assert played.violation is None
    [back] = [step.partition(" notes that ")[2] for step in played.steps if " notes that " in step]
    assert back == "the position was reset to epoch 1, and readers may have seen epoch 3; turn 1"
    monkeypatch.setattr(event_time, "cut", nothing)
    unaware = play(CUT_BACK)
    assert unaware.violation is not None
    assert unaware.violation.name is Anomaly.TIME
    assert not any(" notes that " in step for step in unaware.steps)


@pytest.mark.parametrize("records", [2, pytest.param(3, marks=LARGER)])
def test_what_a_sink_that_was_made_anew_lacks_is_brought_from_the_other(
    records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought, bring = list[tuple[str, int]](), rewind._bring

    def told(of, state, sink, step, rows):
        brought.append((sink.id, step.epoch.number))
        return bring(of, state, sink, step, rows)

    monkeypatch.setattr(rewind, "_bring", told)
    found = search(replace(BOUNDS["rewound"], records=records, harms=(Harm.REPLACED,)))
    assert found.violation is None, "\n".join(lines(found))
    assert found.complete
    assert {number for _, number in brought} >= {*range(1, records + 1)}
