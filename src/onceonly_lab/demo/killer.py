"""Kill and restart the demo's driver as planned.

It sends SIGKILL, restarts the driver until the input is used up, and counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onceonly_lab.chaos.monitor import DriverMonitor
from onceonly_lab.demo.job import Job
from onceonly_lab.demo.plan import Kill
from onceonly_lab.driver import Driver, DriverEnded, DriverSilent
from onceonly_lab.schedule import Action
from onceonly_lab.session.launch import JvmArchive

_SILENCE_SECONDS = 300.0
_LINES_OF_AN_ERROR = 10


class KillNeverFired(RuntimeError):
    """The input was used up before a planned kill: the run proves less than it was asked to."""


@dataclass(slots=True)
class Tally:
    """What was seen of one sink from outside its driver.

    Attributes:
        offered: batch ids that Spark handed to the sink's function, one set per driver.
        done: batch ids whose function returned.
    """

    offered: list[set[int]] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    @property
    def batches(self) -> int:
        """Different batches that Spark has offered."""
        return len(set().union(*self.offered))

    @property
    def replayed(self) -> int:
        """Batches that were offered again after a restart."""
        return sum(len(batches & set().union(*self.offered[:index])) for index, batches in enumerate(self.offered))


@dataclass(slots=True)
class Run:
    """One variant of the job, from the first driver to the end of the input.

    Attributes:
        tallies: by query.
        fired: kills that ended a driver, in order.
        restarts: drivers that were started after a kill.
        seconds: wall time.
    """

    tallies: dict[str, Tally]
    fired: list[Kill] = field(default_factory=list)
    restarts: int = 0
    seconds: float = 0.0


Watcher = Callable[[Run, dict[str, Any]], None]
"""Is told every event of a run: the driver's own lines, and ``start``, ``tick`` and ``killed``."""


class _Watched:
    """One driver as the driver monitor tells of it: what it was given to die of, and where that struck."""

    name = "the demo's job"
    patience = _SILENCE_SECONDS

    def __init__(self, run: Run, kill: Kill | None, watcher: Watcher) -> None:
        self._run, self._kill, self._watcher = run, kill, watcher
        self._begun = 0

    def waits(self) -> None:
        self._watcher(self._run, {"event": "tick"})

    def told(self, event: dict[str, Any], number: int) -> None:
        if event["event"] == "begin":
            self._run.tallies[event["sink"]].offered[-1].add(event["batch"])
            self._begun += self._kill is not None and event["sink"] == self._kill.sink
        if event["event"] == "end":
            self._run.tallies[event["sink"]].done.add(event["batch"])
        self._watcher(self._run, event)

    def strike(self, number: int, at: int) -> Action:
        """It may fall in a later batch than was aimed at: one that is already written passes few points."""
        assert self._kill is not None
        self._run.fired.append(replace(self._kill, batch=self._begun) if self._kill.point else self._kill)
        return Action.KILL


def torment(job: Job, kills: Sequence[Kill], folder: Path, watcher: Watcher, archive: JvmArchive) -> Run:
    """Run the job to the end of its input through all ``kills``; logs of the drivers go to ``folder``.

    The plain job comes first: its last driver, which nobody kills, makes the archive if there is none yet.

    Raises:
        DriverEnded: a driver failed by itself, or was killed by somebody else.
        DriverSilent: a driver hung.
        KillNeverFired: the input ended before the last kill.
    """
    run = Run({name: Tally() for name in job.queries})
    started = time.monotonic()
    try:
        for number, kill in enumerate([*kills, None], start=1):
            making = kill is None and job.variant == "plain" and not archive.made
            environment = archive.making() if making else archive.environment()
            watcher(run, {"event": "start", "driver": number})
            _live(replace(job, aim=kill), folder / f"{job.variant}-{number}", environment, run, watcher)
            run.seconds = time.monotonic() - started
        archive.keep()
    finally:
        archive.discard()
    return run


def _live(job: Job, log: Path, environment: dict[str, str], run: Run, watcher: Watcher) -> None:
    job_file = log.with_suffix(".json")
    job.save(job_file)
    for tally in run.tallies.values():
        tally.offered.append(set())
    watched = _Watched(run, job.aim, watcher)
    with Driver.module("onceonly_lab.demo.job", job_file, log=log, env=environment) as driver:
        try:
            ended = DriverMonitor(watched, driver, len(run.fired) + 1, renewed=True).attend()
        except DriverEnded:
            raise DriverEnded(f"{log.name} ended with exit code {driver.poll()}\n{_reason(driver)}") from None
        if ended == "silent":
            raise DriverSilent(f"no batch for {_SILENCE_SECONDS:.0f} s\n{driver.last_words()}")
    if ended == "killed":
        run.restarts += 1
        watcher(run, {"event": "killed", "moment": run.fired[-1].moment})
    elif job.aim is not None:
        raise KillNeverFired(f"the input was used up before the kill {job.aim.moment}")


def _reason(driver: Driver) -> str:
    """An error of ours, which Spark buries in the middle of its own; else the tail of stderr."""
    _, ours, text = driver.err.read_text(errors="replace").partition("[ONCE-")
    return "\n".join(f"{ours}{text}".splitlines()[:_LINES_OF_AN_ERROR]) if ours else driver.last_words()
