"""The engine, broken on purpose: Streaming 102 and random streams beside brute force notice each mutant.

A mutant is the text of the engine, or of the driver that does here what the runner does, with one change; or a way to
load state that a runner must not have. How many streams it took is printed.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType

import pytest
from tests.panes import drive, story
from tests.panes.compare import Runs, compared
from tests.panes.drive import COLUMNS, Epochs, World, epoch, panes_of, run
from tests.panes.oracle import Epoch
from tests.panes.streams import drawn_epochs, drawn_rules, measures
from tests.panes.test_values import check_estimate

from onceonly.windows import CountDistinct
from onceonly.windows.rules import spec, step, values
from onceonly.windows.rules.spec import Definition, define

STREAMS = 600


@dataclass(frozen=True)
class Mutant:
    """One change of a text."""

    old: str
    new: str
    of: ModuleType = step

    def module(self) -> ModuleType:
        """The changed text."""
        source = inspect.getsource(self.of)
        assert source.count(self.old) == 1, f"{self.of.__name__} does not say once: {self.old}"
        module = ModuleType(f"mutant_of_{self.of.__name__.replace('.', '_')}")
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            exec(compile(source.replace(self.old, self.new), module.__name__, "exec"), vars(module))
        finally:
            del sys.modules[module.__name__]
        return module

    def runs(self) -> Runs:
        """What runs streams on the changed text."""
        module = self.module()
        if self.of is drive:
            runs: Runs = module.run
            return runs
        return partial(run, engine=module) if self.of is step else partial(_defined_by, module)


def _defined_by(module: ModuleType, definition: Definition, epochs: Sequence[Epoch], draw: random.Random) -> Epochs:
    """Run a definition whose windows, or numbers of different values, are those of a changed text."""
    if hasattr(module, "CountDistinct"):
        broken = type("Broken", (CountDistinct,), {"over": module.CountDistinct.over})
        aggregates = {
            name: broken(value.column) if isinstance(value, CountDistinct) else value
            for name, value in definition.panes.aggregates.items()
        }
        return run(define(replace(definition.panes, aggregates=aggregates), COLUMNS), epochs, draw)
    return run(module.define(definition.panes, COLUMNS), epochs, draw)


MUTANTS = {
    "results that stand are lost where sessions merge": Mutant(
        "tuple(sorted(emitted for old in olds for emitted in old.emitted))", "()"
    ),
    "rows that wait are lost where sessions merge": Mutant("fresh = sum(old.fresh for old in olds)", "fresh = 0"),
    "numbers of results begin anew where sessions merge": Mutant("max(old.panes for old in olds)", "0"),
    "a trigger begins anew where sessions merge": Mutant(
        "triggers.united(self._is.trigger, fresh, self._at.clock, passed=union_key.end <= self._before)", "None"
    ),
    "a window that changed closes without a result": Mutant(
        "if window.fresh:\n                self._emit(_CLOSES",
        "if False:\n                self._emit(_CLOSES",
    ),
    "timers after rows": Mutant(
        "work.ticks()\n    dropped = work.takes(partials)", "dropped = work.takes(partials)\n    work.ticks()"
    ),
    "what is noted passes before rows come": Mutant(
        "dropped = work.takes(partials)\n    work.passes()", "work.passes()\n    dropped = work.takes(partials)"
    ),
    "a row is late by what its own epoch notes": Mutant(
        "definition.closed_end(moment.noted_before)", "definition.closed_end(moment.complete_until)"
    ),
    "a row is dropped one instant late": Mutant(
        "if partial.window_key.end > closed_end", "if partial.window_key.end >= closed_end"
    ),
    "a window is passed one instant late": Mutant(
        "< window.window_key.end <= self._now", "< window.window_key.end < self._now"
    ),
    "a window closes one instant late": Mutant(
        "if window.window_key.end <= closed_end", "if window.window_key.end < closed_end"
    ),
    "a window that begins late waits to be on time": Mutant("if partial.window_key.end <= self._before:", "if False:"),
    "an early result has the instant of its epoch": Mutant(
        "self._emit(_TICKS, window, due)", "self._emit(_TICKS, window, self._at.clock)"
    ),
    "results that discard keep what they showed": Mutant(
        'if how == "discarding":\n            window.values = (None,) * len(values)', "pass"
    ),
    "a retraction is of what was shown last alone, and stays": Mutant(
        'if how == "retracting" else ()\n', 'if how == "retracting" and not window.emitted else window.emitted\n'
    ),
    "windows do not say when they wake by the clock": Mutant(
        "wake_clock = triggers.wakes(self._is.trigger, window.trigger)", "wake_clock = None"
    ),
    "windows wake when they close, and not before": Mutant(
        "wake_time = end if end > self._now else self._is.closes(end)", "wake_time = self._is.closes(end)"
    ),
    "windows that are closed stay in the state": Mutant(
        "tuple(window_key for window_key in self._initial_keys if window_key not in self._open)", "()"
    ),
    "what is noted is taken before it is held to its past": Mutant(
        "noted = _later(world.noted, said.noted)", "noted = said.noted", drive
    ),
    "a row that names no window is in one of its time": Mutant(
        "return [own] if own else []", "return [own or (time, time + 1000)]", spec
    ),
    "windows that rows name are one where they begin alike": Mutant(
        "return [own] if own else []", "return [(own[0], own[0] + 10_000)] if own else []", spec
    ),
    "a value is counted in each epoch that it comes in": Mutant(
        "sorted({*partial, *other}, key=json_values.ordering(kind))", "sorted([*partial, *other])", values
    ),
    "different values are those of the newest epoch": Mutant(
        "sorted({*partial, *other}, key=json_values.ordering(kind))", "sorted({*other})", values
    ),
    "state loses what is not asked for": Mutant(
        "for place, stored in world.state.items() if place not in set(stepped.gone)}",
        "for place, stored in world.state.items() if place in shown and place not in set(stepped.gone)}",
        drive,
    ),
}


def of_the_epoch_before_the_last(definition: Definition, epochs: Sequence[Epoch], draw: random.Random) -> Epochs:
    """State is loaded without asking of which epoch it is: here it is one too old."""
    return _loading(definition, epochs, draw, -2)


def of_this_epoch_already(definition: Definition, epochs: Sequence[Epoch], draw: random.Random) -> Epochs:
    """One who was overtaken loads what his successor has committed."""
    return _loading(definition, epochs, draw, 0)


def _loading(definition: Definition, epochs: Sequence[Epoch], draw: random.Random, shift: int) -> Epochs:
    right = run(definition, epochs, draw)
    worlds = dict(enumerate(right.worlds))
    found = []
    for at, said in enumerate(epochs):
        world = replace(worlds.get(at - 1, World()), state=worlds.get(at + shift, World()).state)
        found.append(panes_of(epoch(definition, world, said, draw)[1]))
    return replace(right, panes=tuple(found))


LOADS = {
    "state is loaded as of the epoch before the last": of_the_epoch_before_the_last,
    "state is loaded as of the epoch itself": of_this_epoch_already,
}


@pytest.mark.parametrize("name", [*MUTANTS, *LOADS])
def test_a_mutant_is_noticed(name: str) -> None:
    seed = random.randrange(2**32)
    runs = LOADS[name] if name in LOADS else MUTANTS[name].runs()
    after, what = noticed(runs, seed)
    print(f"seed {seed}, after {after} streams: {what[:200]}")
    assert what, f"{STREAMS} streams of seed {seed} and all figures show nothing"


def test_the_engine_itself_is_not_noticed() -> None:
    seed = random.randrange(2**32)
    after, what = noticed(partial(run, engine=step), seed, most=100)
    assert not what, f"seed {seed}, after {after}: {what}"


ESTIMATES = {
    "an estimate is the number of hashes that are kept": Mutant(
        "(self.keep - 1) * _HASHES // (partial[-1] + _HASHES // 2 + 1)", "len(partial)", values
    ),
    "an estimate is of hashes in another range": Mutant(
        "(partial[-1] + _HASHES // 2 + 1)", "(partial[-1] + _HASHES // 2 + 2**60)", values
    ),
    "the greatest hashes are kept": Mutant("[: self.most]", "[-self.most :] if self.most else []", values),
    "hashes are those of the newest epoch": Mutant("sorted({*partial, *other},", "sorted({*other},", values),
    "a hash counts in each epoch that it comes in": Mutant(
        "sorted({*partial, *other},", "sorted([*partial, *other],", values
    ),
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_a_mutant_of_the_estimate_is_noticed(name: str) -> None:
    broken = ESTIMATES[name].module().ApproxCountDistinct("user", keep=64)
    with pytest.raises(AssertionError):
        check_estimate(broken, 5_000, 0.5)


def noticed(runs: Runs, seed: int, most: int = STREAMS) -> tuple[int, str]:
    """After how many streams somebody sees that something is wrong, and what; figures come first."""
    draw = random.Random(seed)
    figures = [(replace(case.rules, value=measures), case.epochs) for case in story.cases().values()]
    for number in range(len(figures) + most):
        rules, epochs = figures[number] if number < len(figures) else (drawn_rules(draw), drawn_epochs(draw))
        try:
            what = compared(rules, epochs, draw, runs).difference
        except Exception as error:
            what = repr(error)
        if what:
            return number + 1, what
    return len(figures) + most, ""
