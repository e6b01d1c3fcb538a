"""Play many schedules, shrink the first failure and report."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from onceonly.faults import Point
from onceonly_lab.checker import Judgement, Verdict, judge
from onceonly_lab.explorer.search import numbered
from onceonly_lab.history import History, Situation
from onceonly_lab.model.invariants import Name
from onceonly_lab.model.parts import Harm, Kind, keeper_of
from onceonly_lab.play.play import Played
from onceonly_lab.schedule import Action, Gets, Level, Schedule, actions_at

# ---- Makes a failing schedule smaller while it breaks the same: faults, incarnations, batches, sinks, rows.

MOST_REPLAYS = 200

Fails = Callable[[Schedule], Name | None]
"""Plays a schedule; the invariant that it breaks, or ``None``."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What shrinking came to.

    Attributes:
        schedule: the smallest that was found.
        name: the invariant that it breaks.
        replays: how many schedules were played for it.
    """

    schedule: Schedule
    name: Name
    replays: int


def shrink(schedule: Schedule, name: Name, fails: Fails, most: int = MOST_REPLAYS) -> Shrunk:
    """Take away whatever is not needed; greedy, from the start again after each success.

    Args:
        schedule: breaks ``name``.
        name: what it breaks, and what every smaller one must break, too.
        fails: plays a schedule.
        most: how many may be played.
    """
    replays = 0
    smaller = _smaller(schedule)
    while (candidate := next(smaller, None)) is not None and replays < most:
        replays += 1
        if fails(candidate) is name:
            schedule = candidate
            smaller = _smaller(schedule)
    return Shrunk(schedule, name, replays)


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules with half of their drivers or with one thing less, the most telling first."""
    if schedule.incarnations > 2:
        middle = schedule.incarnations // 2
        yield _between(schedule, 1, middle)
        yield _between(schedule, middle + 1, schedule.incarnations)
    for at in range(len(schedule.losses)):
        yield replace(schedule, losses=_without(schedule.losses, at))
    if schedule.program:
        yield replace(schedule, program="")
    for at in range(len(schedule.faults)):
        yield replace(schedule, faults=_without(schedule.faults, at))
    if schedule.incarnations > 1:
        yield from _fewer_incarnations(schedule)
    if schedule.records > 1:
        yield _fewer_records(schedule, schedule.records // 2)
        yield _fewer_records(schedule, schedule.records - 1)
    if len(schedule.sinks) > 1:
        for at in range(len(schedule.sinks)):
            yield _fewer_sinks(schedule, at)
    yield from _fewer_shares(schedule)
    if schedule.rows > 1:
        yield replace(schedule, rows=1)
    if schedule.cuts != (1,):
        yield replace(schedule, cuts=(1,))
    for at, fault in enumerate(schedule.faults):
        for steps in {0, fault.steps // 2} - {fault.steps}:
            fewer = replace(fault, steps=steps)
            yield replace(schedule, faults=(*schedule.faults[:at], fewer, *schedule.faults[at + 1 :]))


def _fewer_records(schedule: Schedule, records: int) -> Schedule:
    """With the first ones only, and what becomes of those."""
    left, gone = (1 << records) - 1, tuple(record for record in schedule.gone if record < records)
    wants, bad = (tuple(mask & left for mask in sets) for sets in (schedule.wants, schedule.bad))
    return replace(schedule, records=records, gone=gone, wants=wants, bad=bad, keys=schedule.keys[:records])


def _fewer_sinks(schedule: Schedule, gone: int) -> Schedule:
    """Without one of them and what befalls it; those after it move up."""
    losses = (loss for loss in schedule.losses if not (loss.sink == gone and loss.what in set(Harm)))
    moved = tuple(replace(loss, sink=loss.sink - (loss.sink > gone)) for loss in losses)
    gets = _without(schedule.gets, gone)
    wants, bad = schedule.wants if Gets.PICKED in gets else (), schedule.bad if Gets.BAD in gets else ()
    sinks = _without(schedule.sinks, gone)
    keys = schedule.keys if Kind.POSTGRES in sinks else ()
    windows = schedule.windows and keeper_of(sinks) is not None
    return replace(schedule, sinks=sinks, losses=moved, gets=gets, wants=wants, bad=bad, keys=keys, windows=windows)


def _fewer_shares(schedule: Schedule) -> Iterator[Schedule]:
    """Without keys, or windows; with all rows for all sinks, or for one more; with calls that change nothing."""
    if schedule.keys:
        yield replace(schedule, keys=())
    if schedule.windows:
        yield replace(schedule, windows=False)
    if schedule.gets:
        yield replace(schedule, gets=(), wants=(), bad=())
    for at, gets in enumerate(schedule.gets):
        if gets is not Gets.ALL:
            other = (*schedule.gets[:at], Gets.ALL, *schedule.gets[at + 1 :])
            wants, bad = schedule.wants if Gets.PICKED in other else (), schedule.bad if Gets.BAD in other else ()
            yield replace(schedule, gets=other, wants=wants, bad=bad)
    if len(schedule.wants) > 1 or len(schedule.bad) > 1:
        yield replace(schedule, wants=schedule.wants[:1], bad=schedule.bad[:1])


def _fewer_incarnations(schedule: Schedule) -> Iterator[Schedule]:
    """Without one of them; those after it move up."""
    for gone in range(schedule.incarnations, 0, -1):
        faults = tuple(
            replace(fault, incarnation=fault.incarnation - (fault.incarnation > gone))
            for fault in schedule.faults
            if fault.incarnation != gone
        )
        losses = tuple(replace(loss, before=loss.before - (loss.before > gone)) for loss in schedule.losses)
        yield replace(schedule, incarnations=schedule.incarnations - 1, faults=faults, losses=losses)


def _between(schedule: Schedule, first: int, last: int) -> Schedule:
    """With these incarnations only, and what is lost before one of them or right after."""
    faults = (fault for fault in schedule.faults if first <= fault.incarnation <= last)
    losses = (loss for loss in schedule.losses if first < loss.before <= last + 1)
    return replace(
        schedule,
        incarnations=last - first + 1,
        faults=tuple(replace(fault, incarnation=fault.incarnation - first + 1) for fault in faults),
        losses=tuple(replace(loss, before=loss.before - first + 1) for loss in losses),
    )


def _without(items: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    return (*items[:at], *items[at + 1 :])


# ---- Plays schedules one after the other until one fails or there are enough.

Play = Callable[[Schedule], Played]

_CLOCKS = {Level.SIMULATED: time.process_time, Level.STORES: time.monotonic}
"""Real stores are waited for; in the simulated world only the processor counts."""


@dataclass
class Report:
    """What many schedules showed.

    Attributes:
        level: where they were played.
        awaited: those who are no driver and must act.
        schedules: how many were played.
        steps: steps in all of them.
        seconds: of the processor, or of the clock where stores are waited for.
        passed: how often each point was passed.
        struck: how often each action came to act at each point.
        actors: how often each of those acted who are no driver.
        reached: how many runs went through each situation.
        refused: why runs ended before all input was taken, with how many.
        failed: the first one that failed; ``None`` if none did.
        judgement: of that one's history; ``None`` where the checker cannot judge it.
        shrunk: the same, made smaller; ``None`` where that takes too long.
    """

    level: Level
    awaited: tuple[str, ...] = ()
    schedules: int = 0
    steps: int = 0
    seconds: float = 0.0
    passed: Counter[Point] = field(default_factory=Counter[Point])
    struck: Counter[tuple[Point, Action]] = field(default_factory=Counter[tuple[Point, Action]])
    actors: Counter[str] = field(default_factory=Counter[str])
    reached: Counter[Situation] = field(default_factory=Counter[Situation])
    refused: Counter[str] = field(default_factory=Counter[str])
    failed: Played | None = None
    judgement: Judgement | None = None
    shrunk: Shrunk | None = None

    @property
    def rate(self) -> float:
        """Schedules a second."""
        return self.schedules / max(self.seconds, 1e-9)

    @property
    def acted(self) -> Counter[Action]:
        """How often each action came to act anywhere."""
        acted: Counter[Action] = Counter()
        for (_, action), times in self.struck.items():
            acted[action] += times
        return acted

    @property
    def idle(self) -> tuple[str, ...]:
        """Those who are no driver and never acted."""
        return tuple(actor for actor in self.awaited if not self.actors[actor])

    @property
    def missing(self) -> tuple[Situation, ...]:
        """Situations that no run went through: without them the runs prove little."""
        return tuple(situation for situation in Situation if not self.reached[situation])

    @property
    def unreached(self) -> tuple[Point, ...]:
        """Points that no schedule passed."""
        return tuple(point for point in Point if not self.passed[point])

    @property
    def unstruck(self) -> tuple[tuple[Point, Action], ...]:
        """Actions that came to act nowhere at a point where they apply."""
        pairs = ((point, action) for point in Point for action in actions_at(point))
        return tuple(pair for pair in pairs if not self.struck[pair])

    def count(self, played: Played, judgement: Judgement | None) -> None:
        """One more was played."""
        self.schedules += 1
        self.steps += len(played.steps)
        for (_, point), times in played.passed.items():
            self.passed[point] += times
        self.struck.update((fault.point, fault.action) for fault in played.acted)
        self.actors.update(played.actors)
        self.reached.update(judgement.reached if judgement else ())
        self.refused.update([played.refusal] if played.refusal else ())


def play_all(
    schedules: Iterable[Schedule],
    play: Play,
    report: Report,
    *,
    checked: bool = True,
    shrinks: bool = False,
    tell: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Play schedules until one fails: an invariant of its world, or its history, is not clean.

    Args:
        schedules: one after the other.
        play: plays one of them.
        report: what is counted up.
        checked: whether the checker judges each history, too.
        shrinks: whether the first that fails is made smaller.
        tell: hears after each schedule what all of them showed so far.

    Raises:
        Stuck: a driver hangs; its last words say with which seed.
    """
    clock = _CLOCKS[report.level]
    began = clock()
    for schedule in schedules:
        try:
            played = play(schedule)
        except Exception as failure:
            failure.args = (*failure.args, f"while the schedule of seed {schedule.seed} was played")
            raise
        judgement = _judged(played, checked=checked)
        report.count(played, judgement)
        report.seconds = clock() - began
        tell(report)
        if played.violation or (judgement and judgement.verdict is not Verdict.CLEAN):
            report.failed, report.judgement = played, judgement
            break
    if report.failed and shrinks and (name := broken(report.failed, checked=checked)):
        report.shrunk = shrink(report.failed.schedule, name, lambda smaller: broken(play(smaller), checked=checked))
    report.seconds = clock() - began
    return report


def broken(played: Played, *, checked: bool = True) -> Name | None:
    """What a run broke, by the invariants of the world or by the checker's judgement; ``None``: nothing."""
    if played.violation is not None:
        return played.violation.name
    judgement = _judged(played, checked=checked)
    return judgement.findings[0].anomaly if judgement and judgement.findings else None


def _judged(played: Played, *, checked: bool) -> Judgement | None:
    return judge(played.history) if checked and not played.schedule.peopled else None


# ---- What one schedule showed, in words for a terminal and as a document.


def told(played: Played, name: Name | None) -> Iterator[str]:
    """A run step by step, and what it broke."""
    yield played.schedule.line
    yield from numbered(played.steps)
    if played.violation is not None:
        yield f"{played.violation.name}: {played.violation.words}"
    yield f"history {fingerprint(played.history)[:16]}: {name or 'every invariant holds'}"


def of_one(played: Played, name: Name | None) -> dict[str, Any]:
    """One run as values."""
    return {
        "schedule": played.schedule.to_json(),
        "anomaly": name and str(name),
        "violation": played.violation and played.violation.words,
        "unstruck": list(played.unstruck),
        "steps": list(played.steps),
        "history": fingerprint(played.history),
    }


def fingerprint(history: History) -> str:
    """Hash of a history, 64 hex digits: equal for equal runs."""
    return hashlib.sha256(history.text.encode()).hexdigest()


# ---- What many showed, the same.


def lines(seed: int, report: Report) -> Iterator[str]:
    """A report on many, line by line."""
    played = f"{report.schedules:,} schedules from seed {seed}"
    acted = f"acted: {_counted(report.acted)}"
    if report.level is Level.SIMULATED:
        yield f"{played}, {report.steps:,} steps, {report.seconds:.1f} s of processor, {int(report.rate):,} schedules/s"
        yield acted
        yield "beside drivers: " + ", ".join(f"{actor} {report.actors[actor]:,}" for actor in report.awaited)
        if report.idle:
            yield "inconclusive: never acted: " + ", ".join(report.idle)
        yield f"points passed: {len(Point) - len(report.unreached)} of {len(Point)}"
        if report.unreached:
            yield "never passed: " + ", ".join(report.unreached)
    else:
        yield f"{played} on real stores, {report.seconds:.0f} s, {60 * report.rate:.0f} schedules a minute"
        yield acted
        yield "reached: " + ", ".join(f"{situation} {report.reached[situation]:,}" for situation in Situation)
        if report.refused:
            yield f"ended by a refusal: {_counted(report.refused)}"
    yield from _outcome(report)


def _counted(counts: Counter[Any]) -> str:
    return ", ".join(f"{what} {times:,}" for what, times in counts.most_common())


def _outcome(report: Report) -> Iterator[str]:
    failed, smaller = report.failed, report.shrunk
    if failed is None:
        yield "every invariant holds, and the checker finds nothing" if report.awaited else "the checker finds nothing"
    elif smaller is not None:
        yield f"{smaller.name} with seed {failed.schedule.seed}; made smaller in {smaller.replays} replays:"
        yield smaller.schedule.text
        yield from told(failed, broken(failed))
    else:
        yield from unshrunk(report)


def unshrunk(report: Report) -> Iterator[str]:
    """Why the first that failed did, as the checker says it, and its schedule; nothing where none was judged.

    A history that proves too little breaks nothing, so that there is nothing that a smaller schedule could break, too.
    """
    failed, judgement = report.failed, report.judgement
    if failed is not None and judgement is not None:
        yield f"{judgement.sentence} with seed {failed.schedule.seed}:"
        for finding in judgement.findings:
            where = f"{finding.sink or ''} epoch {finding.epoch}"
            yield f"  {finding.anomaly} {where}: {finding.what}, lines {finding.lines}"
        for reason in judgement.missing:
            yield f"  {reason}"
        yield failed.schedule.text


def document(seed: int, report: Report) -> dict[str, Any]:
    """The same as values."""
    common = {
        "seed": seed,
        "schedules": report.schedules,
        "schedule": report.failed and report.failed.schedule.to_json(),
        "judgement": report.judgement and report.judgement.to_json(),
    }
    if report.level is Level.SIMULATED:
        return common | {
            "steps": report.steps,
            "seconds": report.seconds,
            "acted": dict(report.acted),
            "actors": dict(report.actors),
            "idle": list(report.idle),
            "unreached": list(report.unreached),
            "anomaly": report.shrunk and str(report.shrunk.name),
            "shrunk": report.shrunk and report.shrunk.schedule.to_json(),
        }
    acted = [{"point": point, "action": action, "times": times} for (point, action), times in report.struck.items()]
    return common | {
        "level": str(report.level),
        "seconds": round(report.seconds, 1),
        "per_minute": round(60 * report.rate, 1),
        "passed": {str(point): times for point, times in report.passed.items()},
        "acted": acted,
        "reached": {str(situation): report.reached[situation] for situation in Situation},
        "refused": dict(report.refused),
    }
