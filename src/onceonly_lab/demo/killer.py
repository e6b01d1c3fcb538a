"""The killer: starts the driver, SIGKILLs it as planned, starts it again until the input is used up, and counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onceonly.session.archive import JvmArchive
from onceonly_lab.demo.job import Aim, Job
from onceonly_lab.demo.plan import Kill
from onceonly_lab.driver import Driver, DriverEnded, DriverSilent

_KILLED = -9
_SILENCE_SECONDS = 300.0
_POLL_SECONDS = 0.04
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


@dataclass(slots=True)
class _Life:
    """One driver: what it was told, and what became of its kill.

    Attributes:
        kill: ``None`` for the driver that may reach the end of the input.
        begun: batches that the kill's sink has begun.
        due: for a random moment, when it comes.
        struck: the kill as it fell: in the batch aimed at, or a later one.
    """

    job: Job
    kill: Kill | None
    log: Path
    environment: dict[str, str]
    begun: int = 0
    due: float | None = None
    struck: Kill | None = None

    def see(self, event: dict[str, Any]) -> None:
        """Follow the driver's own lines."""
        if self.kill is None or event.get("sink") != self.kill.sink:
            return
        if event["event"] == "begin":
            self.begun += 1
            if self.kill.point is None and self.begun == self.kill.batch:
                self.due = time.monotonic() + self.kill.delay
        if event["event"] == "kill":
            self.struck = replace(self.kill, batch=self.begun)


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
            aimed = replace(job, aim=_aim(kill))
            watcher(run, {"event": "start", "driver": number})
            _live(_Life(aimed, kill, folder / f"{job.variant}-{number}", environment), run, watcher)
            run.seconds = time.monotonic() - started
        archive.keep()
    finally:
        archive.discard()
    return run


def _aim(kill: Kill | None) -> Aim | None:
    if kill is None or kill.point is None:
        return None
    return kill.sink, kill.batch, kill.point, max(kill.written, 1)


def _live(life: _Life, run: Run, watcher: Watcher) -> None:
    told = life.log.with_suffix(".json")
    life.job.save(told)
    for tally in run.tallies.values():
        tally.offered.append(set())
    with Driver.module("onceonly_lab.demo.job", told, log=life.log, env=life.environment) as driver:
        code = _watch(driver, life, run, watcher)
    if code == _KILLED and life.struck:
        run.fired.append(life.struck)
        run.restarts += 1
        watcher(run, {"event": "killed", "moment": life.struck.moment})
    elif code != 0:
        raise DriverEnded(f"{life.log.name} ended with exit code {code}\n{_reason(driver)}")
    elif life.kill:
        raise KillNeverFired(f"the input was used up before the kill {life.kill.moment}")


def _reason(driver: Driver) -> str:
    """An error of ours, which Spark buries in the middle of its own; else the tail of stderr."""
    _, ours, text = driver.err.read_text(errors="replace").partition("[ONCE-")
    return "\n".join(f"{ours}{text}".splitlines()[:_LINES_OF_AN_ERROR]) if ours else driver.last_words()


def _watch(driver: Driver, life: _Life, run: Run, watcher: Watcher) -> int:
    heard = time.monotonic()
    while True:
        code = driver.poll()
        for event in _events(driver):
            heard = time.monotonic()
            life.see(event)
            _note(run, event)
            watcher(run, event)
        if code is not None:
            return code
        if life.due is not None and time.monotonic() >= life.due:
            life.struck = life.kill
            return driver.kill()
        if time.monotonic() - heard > _SILENCE_SECONDS:
            raise DriverSilent(f"no batch for {_SILENCE_SECONDS:.0f} s\n{driver.last_words()}")
        watcher(run, {"event": "tick"})
        time.sleep(_POLL_SECONDS)


def _events(driver: Driver) -> list[dict[str, Any]]:
    """What the job said; its stdout is the JVM's, too."""
    return [json.loads(line) for line in driver.lines() if line.startswith("{")]


def _note(run: Run, event: dict[str, Any]) -> None:
    if event["event"] == "begin":
        run.tallies[event["sink"]].offered[-1].add(event["batch"])
    if event["event"] == "end":
        run.tallies[event["sink"]].done.add(event["batch"])
