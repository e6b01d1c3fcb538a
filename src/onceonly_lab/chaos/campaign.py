"""Run a chaos campaign of schedules over one job.

The first run is without faults. The campaign then plays one schedule after another until one fails, all are played or
time is up.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from onceonly.errors import refuse
from onceonly.faults import Point
from onceonly_lab.chaos.cells import ENDS, Cell, Facts, Matrix, left_out
from onceonly_lab.chaos.destinations import Servers
from onceonly_lab.chaos.draw import draw
from onceonly_lab.chaos.least import DEFAULT, Least
from onceonly_lab.chaos.pipeline import Pipeline
from onceonly_lab.chaos.play import OPERABLE, play
from onceonly_lab.chaos.pool import DriverPool, Played, Stage, cut_to, struck_cells, unpolled
from onceonly_lab.chaos.program import has_ledger
from onceonly_lab.chaos.result import Result
from onceonly_lab.checker import Anomaly, Judgement, Verdict, judge
from onceonly_lab.history import History
from onceonly_lab.model.parts import Kind
from onceonly_lab.play.many import shrink
from onceonly_lab.schedule import LEDGER, Action, Level, Schedule, UnreadableSchedule

# ---- Runs a job without faults, then through one schedule after another until one fails, all are played or time is
# up.

DONE = "done"
MOST_SMALLER = 20
"""Schedules that are played to make a failing one smaller."""

_SHRINKING_S = 300.0

_NOTHING = Least()

_UNTOLD = frozenset({Point.COMMIT_AFTER, Point.RECORD_BEFORE, Point.RECORD_AFTER, Point.RETURN_BEFORE})
"""Points at which rows are written, and Spark does not know."""


@dataclass
class Campaign:
    """One job on one stage.

    Attributes:
        stage: where it is played.
        seed: what schedules are drawn from.
        told: is told a line of words after each schedule.
        elsewhere: cells in which something came to act in campaigns on other jobs; what they left is drawn.
        name: of its runs, with a number behind it: a part of names of databases and topics.
    """

    stage: Stage
    seed: int = 1
    told: Callable[[str], None] = field(default=lambda _: None)
    elsewhere: frozenset[Cell] = frozenset()
    name: str = "run"

    def __post_init__(self) -> None:
        self._golden: dict[tuple[int, int], History] = {}
        self._played: list[Played] = []
        self._struck: Counter[Cell] = Counter()
        self._drawn: set[Cell] = set()
        self._passed: Counter[Point] = Counter()
        self._left_out: dict[Cell, str] = {}
        self._damage: Counter[str] = Counter()
        self._names = 0
        self._plain: bool | None = None

    # ---- without faults

    def rehearse(self, batches: int, rows: int) -> Facts:
        """Run the job without faults; what it leaves is what is right.

        Raises:
            ConfigurationError: E117, E118 or E119, the job cannot be judged.
        """
        job = self.stage.job
        faultless = Schedule((Kind.DELTA,), batches, rows=rows, job=job.name)
        name = self._name()
        played = play(self.stage, faultless, name, plain=self._plain)
        if played.ended != DONE:
            log = self.stage.folder / "drivers"
            raise refuse("E119", job=job.name, reason=played.words or played.ended, log=log)
        if not played.callbacks:
            raise refuse("E117", job=job.name, cause="its query has no foreachBatch")
        history = _known(played)
        _check_sinks(job.name, played, history)
        self._golden[batches, rows] = history
        self._plain = not set(played.passed) - ENDS
        facts = Facts(
            job.name,
            tuple(sink.kind for sink in played.sinks),
            batches,
            rows,
            dict(played.passed),
            self._plain,
            self.stage.level,
            stateful=(self.stage.checkpoint(name) / "state").is_dir(),
            ledger=has_ledger(str(self.stage.checkpoint(name))),
            workers=job.workers,
        )
        self._left_out = left_out(facts)
        return facts

    # ---- with faults

    def run(
        self,
        budget: float,
        only: Action | None = None,
        *,
        thorough: bool = False,
        most: int | None = None,
        least: Least = _NOTHING,
    ) -> Result:
        """Play schedules until one fails, all are played, or ``budget`` seconds are over.

        Args:
            budget: seconds since the stage was set. A schedule that would take longer loses its last drivers.
            only: schedules with this action only.
            thorough: every action at every point.
            most: schedules that are played at most.
            least: what it must have gone through.
        """
        job = self.stage.job
        facts = self.rehearse(job.batches, max(1, job.rows // job.batches))
        judged = judge(*[self._golden[facts.batches, facts.rows]] * 2)
        if judged.findings:
            return self._result(replace(judged, run=f"{job.name}, with nothing broken"), facts.faultless)
        self.told(f"without faults: {judged.sentence}")
        until = self.stage.began + budget
        for drawn in islice(self._chosen(facts, only, thorough=thorough), most):
            schedule = self._fitting(drawn, until)
            if schedule is None:
                break
            judged = self._judged(schedule)
            if judged.verdict is Verdict.ANOMALY:
                return self._smaller(schedule, judged, until + budget)
        kills, struck = sum(played.kills for played in self._played), len(+self._struck)
        little = least.lacking(kills, struck, len(Matrix(self._left_out).cells))
        return self._result(_summed(job.name, self._played, (*self._missing(facts, only), *little)), None)

    def replay(self, schedule: Schedule) -> Result:
        """Play one schedule.

        Raises:
            UnreadableSchedule: it asks for what real drivers cannot be given.
        """
        check_playable(schedule, self.stage.level)
        self.rehearse(schedule.records, schedule.rows)
        judged = self._judged(schedule)
        missed = tuple(f"never came to act: {words}" for words in self._played[-1].unstruck)
        return self._result(replace(judged, missing=(*judged.missing, *missed)), schedule if judged.findings else None)

    def shrink(self, schedule: Schedule) -> Result:
        """Make a schedule that fails smaller; one that does not fail comes back as :meth:`replay` has it."""
        replayed = self.replay(schedule)
        if replayed.schedule is None:
            return replayed
        return self._smaller(schedule, replayed.judgement, time.monotonic() + _SHRINKING_S)

    def _chosen(self, facts: Facts, only: Action | None, *, thorough: bool) -> Iterable[Schedule]:
        drawn = draw(facts, self.seed, struck=self._struck, elsewhere=self.elsewhere, thorough=thorough)
        return (
            schedule for schedule in drawn if only is None or any(fault.action is only for fault in schedule.faults)
        )

    def _fitting(self, schedule: Schedule, until: float) -> Schedule | None:
        """As many of its drivers as there is time for; the first schedule of all is played whatever it takes."""
        if not self._played:
            return schedule
        drivers = int((until - time.monotonic()) / self._a_driver())
        return cut_to(schedule, drivers - 1)

    def _judged(self, schedule: Schedule) -> Judgement:
        played = play(self.stage, schedule, self._name(), plain=self._plain)
        self._played.append(played)
        self._drawn.update((fault.point, fault.action) for fault in schedule.faults)
        self._struck.update(struck_cells(played))
        self._damage.update(loss.what for loss in played.operated)
        self._passed.update(played.passed)
        judged = judge(_known(played), self._golden[schedule.records, schedule.rows])
        self.told(f"{schedule.line}: {judged.verdict}, {played.kills} killed, {played.seconds:.1f} s")
        return judged

    def _smaller(self, schedule: Schedule, judged: Judgement, until: float) -> Result:
        name = judged.findings[0].anomaly
        judgements: dict[Schedule, Judgement] = {schedule: judged}
        tries = MOST_SMALLER

        def fails(candidate: Schedule) -> Anomaly | None:
            nonlocal tries
            # The sinks and the rows of a batch are the job's own; fewer of them would be another job.
            same = (candidate.sinks, candidate.rows, candidate.cuts) == (schedule.sinks, schedule.rows, schedule.cuts)
            harmless = not candidate.faults and not candidate.losses
            if harmless or not same or not tries or time.monotonic() > until:
                return None
            tries -= 1
            if (candidate.records, candidate.rows) not in self._golden:
                self.rehearse(candidate.records, candidate.rows)
            judgements[candidate] = self._judged(candidate)
            return next((finding.anomaly for finding in judgements[candidate].findings), None)

        smallest = shrink(schedule, name, fails).schedule
        return self._result(judgements[smallest], smallest)

    def _missing(self, facts: Facts, only: Action | None) -> Iterator[str]:
        """What a campaign has to go through before it proves anything."""
        if not self._played:
            yield "the budget was over before anything could be broken"
        if only is not None:
            if only not in {action for _, action in self._struck}:
                yield f"never reached: {only}"
            return
        killed = {point for point, action in self._struck if action is Action.KILL}
        if self.stage.level is Level.COLD:
            if not any(played.woken for played in self._played):
                yield "never reached: a driver woke up after another had taken over"
        elif not killed & _UNTOLD:
            yield "never reached: killed after the rows were written, before Spark knew"
        if len(facts.sinks) > 1 and self.stage.level is Level.WARM and not any(played.split for played in self._played):
            yield "never reached: one sink committed, one not, recovered"

    def _a_driver(self) -> float:
        """Seconds that a driver took, with its part in start and end of its run."""
        return sum(played.seconds for played in self._played) / sum(played.drivers for played in self._played)

    def _name(self) -> str:
        self._names += 1
        return f"{self.name}{self._names:03d}"

    def _result(self, judged: Judgement, schedule: Schedule | None) -> Result:
        result = Result(
            job=self.stage.job.name,
            seed=self.seed,
            judgement=judged,
            plays=len(self._played),
            kills=sum(played.kills for played in self._played),
            seconds=time.monotonic() - self.stage.began,
            matrix=Matrix(self._left_out, dict(self._struck), dict(self._passed), frozenset(self._drawn), self._damage),
            schedule=schedule,
            folder=self.stage.folder,
        )
        failed = next((played for played in reversed(self._played) if played.schedule == schedule), None)
        if failed is not None:
            shutil.copy(failed.file, self.stage.folder / "history.jsonl")
        result.save()
        return result


OWN = frozenset({Action.PAUSE, Action.KILL_JVM})
"""What needs a JVM of the driver's own."""


def check_playable(schedule: Schedule, level: Level | None = None) -> None:
    """Demand that real drivers can be given everything that a schedule asks for.

    Raises:
        UnreadableSchedule: they cannot; the text names the first thing.
    """
    for at, fault in enumerate(schedule.faults):
        if level is Level.WARM and fault.action in OWN:
            raise UnreadableSchedule(f"faults[{at}].action: {fault.action} needs a JVM of the driver's own: L4")
    for at, loss in enumerate(schedule.losses):
        if loss.what != LEDGER and loss.what not in OPERABLE:
            raise UnreadableSchedule(f"losses[{at}].what: a checkpoint on a disk cannot be {loss.what}")


def _known(played: Played) -> History:
    assert played.history is not None
    return played.history


def _check_sinks(job: str, played: Played, history: History) -> None:
    if not played.sinks:
        raise unpolled(job, "The output", "the job asked env.sinks for nothing")
    for sink in played.sinks:
        if not any(entry.final and entry.sink == sink.sink and entry.rows for entry in history.entries):
            raise unpolled(job, sink.sink, "no row was in it at the end of a run without faults")


def _summed(job: str, played: list[Played], missing: tuple[str, ...]) -> Judgement:
    """All clean runs as one judgement."""
    reads = sum(1 for run in played for entry in _known(run).entries if entry.sink and entry.rows is not None)
    rows = sum(run.schedule.records * run.schedule.rows for run in played)
    epochs = sum(run.schedule.records for run in played)
    return Judgement(job, (), frozenset(), missing, epochs, rows, reads)


# ---- Sets a stage for a job and runs a campaign on it: what the fixture ``chaos`` and the command line call.

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_UNITS = {None: 1, "s": 1, "m": 60, "h": 3600}


def seconds_of(budget: str | float) -> float:
    """Seconds of a budget: ``"90s"``, ``"3m"``, or a number of seconds.

    Raises:
        ConfigurationError: E110, it is none.
    """
    match = _BUDGET.fullmatch(str(budget).strip())
    if match is None:
        raise refuse(
            "E110", problem=f"budget={budget!r} is no time.", cause="a number with s, m or h", next='budget="3m"'
        )
    return float(match[1]) * _UNITS[match[2]]


@contextmanager
def staged(job: Pipeline, folder: Path, level: Level = Level.WARM) -> Generator[Stage]:
    """A stage for a job: its JVM and its servers end with it, its folder stays.

    Args:
        job: what is run.
        folder: must not exist, or be empty.
        level: how real.

    Raises:
        ConfigurationError: E110, jobs do not run at this level.
    """
    if not level.runs_jobs:
        raise refuse(
            "E110", problem=f"A job cannot be run at {level}.", cause="it needs drivers: L3 or L4", next="level L3"
        )
    began = time.monotonic()
    with Servers() as servers, DriverPool(job, level, folder / "drivers") as pool:
        yield Stage(job, level, folder, pool, servers, began)


def chaos(
    job: Pipeline,
    folder: Path,
    budget: str | float = "3m",
    *,
    seed: int = 1,
    level: Level = Level.WARM,
    only: Action | None = None,
    most: int | None = None,
    at_least: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Break a job again and again, and judge what it leaves.

    Args:
        job: a function under :func:`onceonly_lab.pipeline`.
        folder: for everything that is written.
        budget: the longest it may take, beside making a failure smaller: ``"90s"``, ``"3m"``.
        seed: decides which schedules are played in which order.
        level: ``L3``: drivers are killed and their JVM lives on; ``L4``: it dies with them, and drivers are stopped.
        only: schedules with this action only.
        most: schedules that are played at most.
        at_least: what proves something, ``"20 kills, 8 cells"``; what went through less is inconclusive. Default: three
            cells, and nothing where ``only`` or ``most`` says what is played.
        progress: is told a line of words after each schedule.

    Raises:
        ConfigurationError: E110, E117, E118 or E119, the job cannot be judged.
        DriverEnded: a driver died of something else.
    """
    if not isinstance(job, Pipeline):  # pyright: ignore[reportUnnecessaryIsInstance] - users call this
        raise refuse(
            "E110",
            problem=f"chaos() was given a {type(job).__name__}.",
            cause="it takes a function under @pipeline",
            next="decorate it: from onceonly_lab import pipeline",
        )
    longest = seconds_of(budget)
    chosen = only is not None or most is not None
    least = Least.parse(at_least or DEFAULT) if at_least or not chosen else _NOTHING
    with staged(job, folder, level) as stage:
        return Campaign(stage, seed, progress).run(longest, only, most=most, least=least)


def replay(
    schedule: Schedule,
    job: Pipeline,
    folder: Path,
    level: Level | None = None,
    progress: Callable[[str], None] = print,
    *,
    smaller: bool = False,
) -> Result:
    """Play one schedule on a job; see :meth:`Campaign.replay`.

    Args:
        schedule: what goes wrong.
        job: a function under :func:`onceonly_lab.pipeline`.
        folder: for everything that is written.
        level: how real; default ``L4`` where a driver is stopped or its JVM dies, else ``L3``.
        progress: is told a line of words after each schedule.
        smaller: make it smaller, too, if it fails.

    Raises:
        UnreadableSchedule: it asks for what real drivers cannot be given.
    """
    check_playable(schedule, level)
    own = any(fault.action in OWN for fault in schedule.faults)
    with staged(job, folder, level or (Level.COLD if own else Level.WARM)) as stage:
        campaign = Campaign(stage, schedule.seed or 0, progress)
        return campaign.shrink(schedule) if smaller else campaign.replay(schedule)
