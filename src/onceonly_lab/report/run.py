"""One recorded run with its judgement, and what is said of all runs together. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from onceonly_lab.checker import Judgement, Verdict, judge
from onceonly_lab.checker.case import lay_out
from onceonly_lab.checker.reading import Reading, interpret
from onceonly_lab.history import History


@dataclass(frozen=True, slots=True)
class Run:
    """A history that was judged.

    Attributes:
        place: where it was read from, as the user named it.
        history: the run.
        reading: what is taken to have happened.
        judgement: the verdict about it.
    """

    place: str
    history: History
    reading: Reading
    judgement: Judgement

    @property
    def name(self) -> str:
        """What was run, else where its history lies."""
        return self.history.header.run or self.place

    @property
    def replay(self) -> str:
        """The command that runs it again; empty where the history names none.

        A history may come from anybody, so it names arguments of ``onceonly lab`` and never a command.
        """
        again = self.history.header.again
        return shlex.join(("onceonly", "lab", *again)) if again else ""

    @property
    def recheck(self) -> str:
        """The command that judges the history again."""
        return shlex.join(("onceonly", "lab", "recheck", self.place))


_ORDER = (Verdict.ANOMALY, Verdict.INCONCLUSIVE, Verdict.CLEAN)


def run_of(place: str, history: History, golden: History | None = None) -> Run:
    """Judge a history.

    Args:
        place: where it was read from.
        history: the run.
        golden: the same run without faults: its final reads say what every sink must hold.

    Raises:
        UnreadableHistory: an assertion names an anomaly that does not exist.
    """
    return Run(place, history, interpret(lay_out(history, golden)), judge(history, golden))


def worst(runs: Sequence[Run]) -> Verdict:
    """The verdict about all: an anomaly outweighs what is missing, and that outweighs what is clean."""
    return next(verdict for verdict in _ORDER if any(run.judgement.verdict is verdict for run in runs))


def by_verdict(runs: Sequence[Run]) -> list[Run]:
    """The same runs, worst first, else in the order in which they were named."""
    return sorted(runs, key=lambda run: _ORDER.index(run.judgement.verdict))
